"""Dataset claims: the idempotency record of each dataset version. Never deleted.

`dataset-claims/<pipeline>/<version>.json` is the claim. `claim-index/<pipeline>/…` has an empty
blob for each batch that requested one, newest first, so that the cost of reading the latest claims
does not depend on the number of claims.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.configuration.newest_first import countdown, list_entries
from handlers.durable.activity_adapter import activity
from handlers.landing_zone.batch_records import last_batch
from handlers.runs.run_index import runs_since
from handlers.runs.run_records import add_to_record, read_run_record
from orchestrations.contracts.datasets import CheckSuperseded, Dataset, Superseded
from orchestrations.contracts.landing import ClaimDataset, DatasetClaim
from orchestrations.contracts.runs import RunRequest
from orchestrations.names import run_id

_INDEX = "claim-index"
_ENTRY = "entry"
PAGE_ENTRIES = 100


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """A claim, with the request that starts its run."""

    claim: DatasetClaim
    request: RunRequest


def _name(pipeline: str, version: str) -> str:
    return f"dataset-claims/{pipeline}/{version}.json"


@activity
def claim_dataset(clients: Clients, request: ClaimDataset) -> DatasetClaim:
    """Claim a dataset version, or return its existing claim, which never changes."""
    claim = DatasetClaim(run=request.run, batch=request.batch)
    document = {"claim": claim.to_dict(), "request": request.request.to_dict()}
    dataset = request.request.dataset
    name = _name(request.request.pipeline.name, dataset.version)
    # Index first: if the process died in between, a claim without an entry would never be found.
    _index(clients, request.request)
    if record_store.create(clients.records, name, document):
        _link_follower(clients, request)
        return claim
    # The claim is this activity's own if an earlier try wrote it.
    kept = record_store.read(clients.records, name)
    assert kept is not None, f"claims are never deleted, but {name} was"
    return DatasetClaim.from_dict(kept["claim"])


def _link_follower(clients: Clients, request: ClaimDataset) -> None:
    """Link a run whose data was overwritten to the run of the zone's next batch.

    The link is informational: errors of storage are suppressed.
    """
    pipeline, dataset = request.request.pipeline.name, request.request.dataset
    with contextlib.suppress(AzureError):
        last = last_batch(clients, pipeline, dataset.partition)
        if last is None or last.dataset.version == dataset.version:
            return
        record = read_run_record(clients, run_id(pipeline, last.dataset.version, 1))
        if record is not None and record.status.state == "superseded":
            add_to_record(clients, record.model_copy(update={"superseded_by": request.run}))


@activity
def check_superseded(clients: Clients, request: CheckSuperseded) -> Superseded:
    """Whether a later dataset of the same zone or partition was claimed, which ends retries."""
    dataset = request.dataset
    for entry in _entries_after(clients, request.pipeline, dataset.frozen_at):
        if entry.partition != dataset.partition:
            continue
        document = record_store.read(clients.records, _name(request.pipeline, entry.version))
        # The entry may be from a batch that found an older claim for its content, or that died
        # before it wrote a claim.
        claimed = None if document is None else _parse(document)
        if claimed is not None and claimed.request.dataset.frozen_at == entry.frozen_at:
            return Superseded(by=claimed.claim.run)
    return Superseded(by=None)


def find_claim(clients: Clients, pipeline: str, version: str) -> DatasetClaim | None:
    """The claim on a dataset version, if there is one."""
    document = record_store.read(clients.records, _name(pipeline, version))
    return None if document is None else DatasetClaim.from_dict(document["claim"])


def claimed_dataset(clients: Clients, pipeline: str, version: str) -> Dataset | None:
    """The dataset of a version, if it was ever claimed."""
    request = claimed_request(clients, pipeline, version)
    return None if request is None else request.dataset


def claimed_request(clients: Clients, pipeline: str, version: str) -> RunRequest | None:
    """The request of the run that claimed a version, if it was ever claimed."""
    document = record_store.read(clients.records, _name(pipeline, version))
    return None if document is None else RunRequest.from_dict(document["request"])


def list_claims_without_run(
    clients: Clients, pipeline: str, *, frozen_after: datetime
) -> Sequence[str]:
    """The names of claims without a run record, for batches frozen after a moment.

    The claim may be from an older batch with the same content, or not exist yet, and its run may be
    about to start.
    """
    versions = list_versions(clients, pipeline, frozen_after=frozen_after)
    if not versions:
        return []
    known = set(runs_since(clients.records, pipeline, frozen_after))
    return [
        _name(pipeline, version)
        for version in versions
        if run_id(pipeline, version, 1) not in known
    ]


def list_versions(clients: Clients, pipeline: str, *, frozen_after: datetime) -> Sequence[str]:
    """The dataset versions of batches that requested a claim and were frozen after a moment."""
    entries = _entries_after(clients, pipeline, frozen_after)
    return list(dict.fromkeys(entry.version for entry in entries))


def read_claim(clients: Clients, name: str) -> ClaimedRun | None:
    """The claim with a name, and its request; None if it does not exist.

    Raises:
        pydantic.ValidationError: its schema is unknown to this release.
    """
    document = record_store.read(clients.records, name)
    return None if document is None else _parse(document)


def _parse(document: Any) -> ClaimedRun:
    return ClaimedRun(
        claim=DatasetClaim.from_dict(document["claim"]),
        request=RunRequest.from_dict(document["request"]),
    )


@dataclass(frozen=True)
class _Entry:
    """An entry of the index: a batch that requested a claim."""

    version: str
    frozen_at: datetime
    partition: str | None


def _index(clients: Clients, request: RunRequest) -> None:
    dataset = request.dataset
    entry = {
        "version": dataset.version,
        "frozen_at": dataset.frozen_at.astimezone(UTC).isoformat(),
        "partition": dataset.partition,
    }
    name = f"{countdown(dataset.frozen_at)}_{dataset.version}"
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
        yield _Entry(document["version"], frozen_at, document["partition"])
