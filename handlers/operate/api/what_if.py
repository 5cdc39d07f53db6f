"""POST /api/pipelines/{name}/what-if: the recorded past, decided by another `pipeline.yml`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, ClassVar

from azure.core.exceptions import ResourceNotFoundError
from pydantic import Field

from handlers.landing.batch_records import frozen_at, newest_batches, read_batch
from handlers.landing.differences import compare_versions
from handlers.landing.holding import is_released
from handlers.operate.api.actions import Asked
from handlers.operate.api.requests import Document, invalid_request
from handlers.operate.what_if import (
    Model,
    Outcome,
    PastBatch,
    Replayed,
    recorded_model,
    recorded_outcome,
    replay,
    sections_not_replayed,
)
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.configuration.pipeline_files import PIPELINE_FILE, parse_kept_pipeline
from handlers.platform.rollout_index import recorded_end
from handlers.platform.run_records import node_hours, read_claim, read_last_attempt
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.outcomes import rule_of_batch
from orchestrations.errors import InvalidPipeline
from orchestrations.names import claim_record, rollout_id, training_of

BATCHES_LIMIT = 200


class WhatIfQuestion(Asked):
    """Body of POST /api/pipelines/{name}/what-if. It changes nothing."""

    LIMIT_BYTES: ClassVar[int] = 200_000

    file: str = Field(min_length=1)
    """The text of a `pipeline.yml`."""
    days: float = Field(default=30.0, gt=0, le=3_660)
    """How far back to begin."""


class WhatIfBatch(Document):
    """A batch: what it became, and what it would have become."""

    batch: str
    frozen_at: datetime
    partition: str | None
    dataset_version: str
    run: str | None
    recorded: Outcome
    recorded_model: Model
    what_if: Outcome
    what_if_model: Model
    why: str
    node_hours: float | None
    """Of its run, in the recorded past; null if it had none."""


class WhatIfTotals(Document):
    """Sums over the batches."""

    trained: int
    held: int
    promoted: int
    rolled_back: int
    unknown: int
    """How many batches or models are unknown."""
    node_hours: float
    """Of the runs that are known."""


class WhatIf(Document):
    """Answer of POST /api/pipelines/{name}/what-if."""

    pipeline: str
    since: datetime
    is_cut: bool
    """Whether there were more batches than are shown: the newest ones are."""
    batches: list[WhatIfBatch]
    """Oldest first."""
    recorded: WhatIfTotals
    what_if: WhatIfTotals
    not_replayed: list[str]
    """Sections of the file that differ from the deployed ones, and whose effect is unknown."""


def what_if(
    clients: Clients, pipeline: Pipeline, question: WhatIfQuestion, *, now: datetime
) -> WhatIf:
    """Decide on the recorded batches by another file, by the same pure decisions.

    The differences of large manifests may take longer than a caller waits (503): they are kept, so
    ask again.

    Raises:
        Problem: 400, the file breaks the schema; names line, key and value.
    """
    file = clients.settings.pipelines_folder / pipeline.name / PIPELINE_FILE
    try:
        changed = parse_kept_pipeline(file, question.file)
    except InvalidPipeline as error:
        raise invalid_request(str(error).rpartition("/")[2], where="file") from None
    since = now - timedelta(days=question.days)
    past = list(islice(_past(clients, pipeline, since), BATCHES_LIMIT + 1))
    is_cut, past = len(past) > BATCHES_LIMIT, past[:BATCHES_LIMIT][::-1]

    def difference_of(base: str | None, version: str) -> Difference | None:
        try:
            return compare_versions(clients, pipeline.name, changed.source, base, version)
        except ResourceNotFoundError:
            return None

    replayed = list(
        replay(changed, past, difference_of, _last_trained_datasets(clients, pipeline, since))
    )
    return WhatIf(
        pipeline=pipeline.name,
        since=since,
        is_cut=is_cut,
        batches=[_shown(each) for each in replayed],
        recorded=_totals((recorded_outcome(it), recorded_model(it), _hours(it)) for it in past),
        what_if=_totals((it.outcome, it.model, it.node_hours) for it in replayed),
        not_replayed=sections_not_replayed(pipeline, changed),
    )


def _past(clients: Clients, pipeline: Pipeline, since: datetime) -> Iterator[PastBatch]:
    """The batches with data since a moment, newest first."""
    for name in newest_batches(clients, pipeline.name):
        batch = read_batch(clients, name)
        if batch is None or not batch.dataset.blobs:
            continue
        if batch.dataset.frozen_at < since:
            return
        released = is_released(clients, pipeline.name, batch.dataset.version)
        yield _add_run(clients, pipeline, PastBatch(batch=batch, is_released=released))


def _last_trained_datasets(
    clients: Clients, pipeline: Pipeline, since: datetime
) -> dict[str | None, Dataset]:
    """The last trained batch of each zone from before a moment, if it is among the last ones."""
    older = (name for name in newest_batches(clients, pipeline.name) if frozen_at(name) < since)
    datasets: dict[str | None, Dataset] = {}
    for name in islice(older, BATCHES_LIMIT):
        batch = read_batch(clients, name)
        if batch is not None and rule_of_batch(batch.result.outcome).is_trained:
            datasets.setdefault(batch.dataset.partition, batch.dataset)
            if pipeline.source.batch == "zone":
                break
    return datasets


def _add_run(clients: Clients, pipeline: Pipeline, past: PastBatch) -> PastBatch:
    result = past.batch.result
    if result.outcome != "started" or result.run is None:
        return past
    training = training_of(result.run)
    claimed = read_claim(clients, claim_record(pipeline.name, training))
    run = read_last_attempt(clients, pipeline.name, training)
    if run is None:
        return past
    results: dict[str, Any] = {}
    is_rolled_back = False
    if run.status.results is not None:
        results = record_store.read(clients.records, run.status.results) or {}
    compared = results.get("comparison")
    if run.status.model is not None and pipeline.deploy is not None:
        rollout = rollout_id(pipeline.deploy.endpoint, run.status.model.version)
        is_rolled_back = recorded_end(clients, rollout) == "rolled_back"
    return replace(
        past,
        run=run,
        metrics=results.get("metrics") or None,
        comparison=None if compared is None else Comparison.model_validate(compared),
        has_reason=claimed is not None and claimed.request.reason is not None,
        is_rolled_back=is_rolled_back,
    )


def _shown(replayed: Replayed) -> WhatIfBatch:
    past, dataset = replayed.past, replayed.past.batch.dataset
    return WhatIfBatch(
        batch=past.batch.batch,
        frozen_at=dataset.frozen_at,
        partition=dataset.partition,
        dataset_version=dataset.version,
        run=None if past.run is None else past.run.status.id,
        recorded=recorded_outcome(past),
        recorded_model=recorded_model(past),
        what_if=replayed.outcome,
        what_if_model=replayed.model,
        why=replayed.why,
        node_hours=_hours(past),
    )


def _hours(past: PastBatch) -> float | None:
    return None if past.run is None else node_hours(past.run)


def _totals(decided: Iterable[tuple[Outcome, Model, float | None]]) -> WhatIfTotals:
    rows: Sequence[tuple[Outcome, Model, float | None]] = list(decided)
    outcomes, models = [it[0] for it in rows], [it[1] for it in rows]
    return WhatIfTotals(
        trained=outcomes.count("trained"),
        held=outcomes.count("held"),
        promoted=models.count("promoted"),
        rolled_back=models.count("rolled-back"),
        unknown=sum("unknown" in it for it in rows),
        node_hours=sum(hours or 0.0 for outcome, _, hours in rows if outcome == "trained"),
    )
