"""Dataset claims: the idempotency record of each round of training. Never deleted.

`dataset-claims/<pipeline>/<version>.json` is the claim of the first round on a dataset version,
`<version>r2.json` that of the second, and so on (`orchestrations.landing.decisions`).
`claim-index/<pipeline>/…` has an empty blob for each batch that requested one, newest first, so
that the cost of reading the latest claims does not depend on the number of claims.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from azure.core.exceptions import AzureError

from handlers.landing.batch_records import last_batch
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.record_store import countdown, list_entries
from handlers.platform.run_index import runs_since
from handlers.platform.run_records import (
    add_to_record,
    node_hours,
    read_claim,
    read_last_attempt,
    read_run_record,
)
from orchestrations.contracts.checked import EndByCheck, EndedByCheck
from orchestrations.contracts.datasets import CheckSuperseded, Dataset, Superseded
from orchestrations.contracts.landing import ClaimDataset, ClaimedRun, DatasetClaim
from orchestrations.contracts.runs import RunRequest
from orchestrations.errors import TransientError
from orchestrations.landing.decisions import LastRound, why_no_further_round
from orchestrations.names import (
    claim_record,
    ended_by_check_record,
    landing_of,
    run_id,
    training_name,
)

logger = logging.getLogger(__name__)

_INDEX = "claim-index"
_ENTRY = "entry"
PAGE_ENTRIES = 100
# A claim is lost only to another batch with the same content at the same moment.
ROUNDS_TRIED = 20


@activity
def claim_dataset(clients: Clients, request: ClaimDataset) -> DatasetClaim:
    """Claim a round of training on a dataset version, or return the existing claim that answers.

    That is the batch's own, if an earlier try wrote it; the one that the same request got under an
    earlier batch; or the newest, with the reason why there is no further round. A claim never
    changes.

    Raises:
        TransientError: other batches claimed every round that was tried.
    """
    claim = _create(clients, request, 1)
    for _ in range(ROUNDS_TRIED):
        if claim is not None:
            return claim
        rounds = _rounds(clients, request.request.pipeline.name, request.request.dataset.version)
        answer = next((each.claim for each in rounds if _is_of(each.claim, request)), None)
        if answer is not None:
            return answer
        newest = rounds[-1]
        why = why_no_further_round(request, _last_round(clients, newest))
        if why is not None:
            logger.info("%s: %s", request.batch, why)
            return newest.claim.model_copy(update={"why_not": why})
        claim = _create(clients, request, newest.claim.round + 1)
    raise TransientError(
        f"{request.batch}: other batches claimed the {ROUNDS_TRIED} rounds that were tried"
    )


def _create(clients: Clients, request: ClaimDataset, number: int) -> DatasetClaim | None:
    """Claim a round; None if it is claimed already."""
    first = request.request.model_copy(update={"round": number})
    claim = DatasetClaim(run=first.run, batch=request.batch, round=number)
    document = ClaimedRun(claim=claim, request=first).to_dict()
    # Index first: if the process died in between, a claim without an entry would never be found.
    _index(clients, first)
    if not record_store.create(
        clients.records, claim_record(first.pipeline.name, first.training), document
    ):
        return None
    _link_follower(clients, first)
    return claim


def _is_of(claim: DatasetClaim, request: ClaimDataset) -> bool:
    """Whether a claim is the batch's own, or of the same request, whose landing was restarted."""
    if request.opened_by == "request":
        return landing_of(claim.batch) == landing_of(request.batch)
    return claim.batch == request.batch


def _rounds(clients: Clients, pipeline: str, version: str) -> Sequence[ClaimedRun]:
    """The claims of all rounds on a dataset version, in order."""
    stem = claim_record(pipeline, version).removesuffix(".json")
    known = re.compile(rf"{re.escape(stem)}(r\d+)?\.json")
    names = filter(known.fullmatch, clients.records.list_blob_names(name_starts_with=stem))
    claims = (read_claim(clients, name) for name in names)
    return sorted((each for each in claims if each is not None), key=lambda it: it.claim.round)


def _last_round(clients: Clients, claimed: ClaimedRun) -> LastRound:
    """A round as its last attempt's record shows it."""
    request = claimed.request
    record = read_last_attempt(clients, request.pipeline.name, request.training)
    redrive = None if record is None else record.status.redrive
    return LastRound(
        run=claimed.claim.run if record is None else record.status.id,
        state=None if record is None else record.status.state,
        next_attempt_at=None if record is None else record.next_attempt_at,
        configuration=redrive.job if redrive and redrive.job else request.configuration,
        parameters=request.parameters,
        ended_by=None if (ended := _read_end(clients, request)) is None else ended.stage,
    )


@activity
def end_by_check(clients: Clients, request: EndByCheck) -> EndedByCheck:
    """Record that a check has ended a round of training; the first record counts."""
    run = request.request
    assert run.checks, "a check is under way"
    pipeline = run.pipeline.name
    claimed = read_claim(clients, claim_record(pipeline, run.training))
    ended = EndedByCheck(
        run=run.run,
        stage=run.checks[0],
        message=request.message,
        at=request.at,
        configuration=run.configuration,
        batch=run.run if claimed is None else claimed.claim.batch,
        saved=None if run.base is None else _cost_of(clients, pipeline, run.base),
    )
    name = ended_by_check_record(pipeline, run.training)
    record_store.create(clients.records, name, ended.to_dict())
    return _read_end(clients, run) or ended


def find_end_by_check(clients: Clients, pipeline: str, version: str) -> EndedByCheck | None:
    """What ended the last round of training on a dataset version, if that was a check."""
    rounds = _rounds(clients, pipeline, version)
    return _read_end(clients, rounds[-1].request) if rounds else None


def _read_end(clients: Clients, request: RunRequest) -> EndedByCheck | None:
    if not request.checks:
        return None
    name = ended_by_check_record(request.pipeline.name, request.training)
    document = record_store.read(clients.records, name)
    return None if document is None else EndedByCheck.from_dict(document)


def _cost_of(clients: Clients, pipeline: str, version: str) -> str | None:
    """What the last training on a dataset version took, in words; None if that is not known."""
    rounds = _rounds(clients, pipeline, version)
    record = read_run_record(clients, _last_round(clients, rounds[-1]).run) if rounds else None
    if record is None or record.compute is None:
        return None
    cost = record.status.cost
    money = "" if cost is None else f", {cost.amount:.2f} {cost.currency}"
    return f"{node_hours(record):.2g} node hours{money}: what run {record.status.id} took"


def _link_follower(clients: Clients, request: RunRequest) -> None:
    """Link a run whose data was overwritten to the run of the zone's next batch.

    The link is informational: errors of storage are suppressed.
    """
    pipeline, dataset = request.pipeline.name, request.dataset
    with contextlib.suppress(AzureError):
        last = last_batch(clients, pipeline, dataset.partition)
        if last is None or last.dataset.version == dataset.version:
            return
        rounds = _rounds(clients, pipeline, last.dataset.version)
        record = read_run_record(clients, rounds[-1].claim.run) if rounds else None
        if record is not None and record.status.state == "superseded":
            add_to_record(clients, record.model_copy(update={"superseded_by": request.run}))


@activity
def check_superseded(clients: Clients, request: CheckSuperseded) -> Superseded:
    """Whether a later dataset of the same zone or partition was claimed, which ends retries."""
    dataset = request.dataset
    for entry in _entries_after(clients, request.pipeline, dataset.frozen_at):
        if entry.partition != dataset.partition:
            continue
        # The entry may be from a batch that found an older claim for its content, or that died
        # before it wrote a claim.
        claimed = read_claim(clients, claim_record(request.pipeline, entry.training))
        if claimed is not None and claimed.request.dataset.frozen_at == entry.frozen_at:
            return Superseded(by=claimed.claim.run)
    return Superseded(by=None)


def claimed_dataset(clients: Clients, pipeline: str, version: str) -> Dataset | None:
    """The dataset of a version, if it was ever claimed."""
    claimed = read_claim(clients, claim_record(pipeline, version))
    return None if claimed is None else claimed.request.dataset


def list_claims_without_run(
    clients: Clients, pipeline: str, *, frozen_after: datetime
) -> Sequence[str]:
    """The names of claims without a run record, for batches frozen after a moment.

    The claim may be from an older batch with the same content, or not exist yet, and its run may be
    about to start.
    """
    entries = _entries_after(clients, pipeline, frozen_after)
    trainings = list(dict.fromkeys(entry.training for entry in entries))
    if not trainings:
        return []
    recorded = set(runs_since(clients.records, pipeline, frozen_after))
    return [
        claim_record(pipeline, training)
        for training in trainings
        if run_id(pipeline, training, 1) not in recorded
    ]


def list_versions(clients: Clients, pipeline: str, *, frozen_after: datetime) -> Sequence[str]:
    """The dataset versions of batches that requested a claim and were frozen after a moment."""
    entries = _entries_after(clients, pipeline, frozen_after)
    return list(dict.fromkeys(entry.version for entry in entries))


@dataclass(frozen=True)
class _Entry:
    """An entry of the index: a batch that requested the claim of a round."""

    version: str
    round: int
    frozen_at: datetime
    partition: str | None

    @property
    def training(self) -> str:
        return training_name(self.version, self.round)


def _index(clients: Clients, request: RunRequest) -> None:
    dataset = request.dataset
    entry = {
        "version": dataset.version,
        "round": request.round,
        "frozen_at": dataset.frozen_at.astimezone(UTC).isoformat(),
        "partition": dataset.partition,
    }
    name = f"{countdown(dataset.frozen_at)}_{request.training}"
    clients.records.upload_blob(
        f"{_INDEX}/{request.pipeline.name}/{name}",
        b"",
        overwrite=True,
        metadata={_ENTRY: json.dumps(entry)},
    )


def _entries_after(clients: Clients, pipeline: str, moment: datetime) -> Iterator[_Entry]:
    """The entries of batches frozen after a moment, newest first."""
    entries = list_entries(
        clients.records,
        f"{_INDEX}/{pipeline}/",
        metadata=_ENTRY,
        first="",
        after=None,
        page_size=PAGE_ENTRIES,
    )
    for _, document in entries:
        frozen_at = datetime.fromisoformat(document["frozen_at"])
        if frozen_at <= moment:
            return
        yield _Entry(
            document["version"], document.get("round", 1), frozen_at, document["partition"]
        )
