"""Batches that started a run, each beside the last one of its zone that was trained on.

What the rules for data are judged by: `features` has one module for each rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import RecordBatch
from orchestrations.contracts.manifest import ManifestLine
from orchestrations.names import REQUEST_PREFIX, landing_of

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence

NEVER = "9999"
Files = Mapping[str, tuple[int, str | None]]
"""Path → size and MD5."""


@dataclass(frozen=True, kw_only=True)
class StartedBatch:
    """A batch that started a run by the rules: nobody released it, or asked for it by a reason."""

    run: str
    pipeline: Pipeline
    before: Dataset
    """The last one that was trained on."""
    dataset: Dataset
    old: Files
    new: Files
    waited: float
    """Seconds since batches of its zone have waited for more data."""

    @property
    def differing(self) -> int:
        """Paths that were added, removed, or have other content; a moved file is two."""
        paths = self.old.keys() | self.new.keys()
        return sum(self.old.get(path) != self.new.get(path) for path in paths)


def started_batches(evidence: Evidence) -> Iterator[StartedBatch]:
    """Those whose content differs from the last trained one's."""
    trained: dict[str | None, list[tuple[str, Dataset]]] = defaultdict(list)
    for batch, since in batches_with_waits(evidence):
        dataset, outcome = batch.dataset, batch.result.outcome
        known, new = trained[dataset.partition], _files(evidence, dataset)
        frozen_at = dataset.frozen_at.isoformat()
        # Training that a check has ended by then does not count.
        before = next((each for at, each in reversed(known) if at > frozen_at), None)
        if outcome in ("started", "duplicate") and new:
            run = evidence.runs.get(batch.result.run or "")
            known.append((evidence.ended_by_check.get(run.version if run else "", NEVER), dataset))
        request = evidence.requests.get(batch.result.run or "")
        if outcome != "started" or request is None or before is None or not new:
            continue
        is_request = landing_of(batch.batch).startswith(REQUEST_PREFIX)
        # A request that names parameters is for that training, also with the pipeline's own values.
        if request.reason or (is_request and request.parameters):
            continue
        if evidence.records(f"released/{batch.result.pipeline}/{dataset.version}"):
            continue
        old = _files(evidence, before)
        if old != new:
            yield StartedBatch(
                run=request.run,
                pipeline=request.pipeline,
                before=before,
                dataset=dataset,
                old=old,
                new=new,
                waited=(dataset.frozen_at - since).total_seconds(),
            )


def _files(evidence: Evidence, dataset: Dataset) -> Files:
    lines: list[ManifestLine] = evidence.manifest(dataset.version)
    return {line.path: (line.size, line.md5) for line in lines}


def batches_with_waits(evidence: Evidence) -> Iterator[tuple[RecordBatch, datetime]]:
    """Each batch, and since when batches of its zone have waited for more data."""
    since: dict[str | None, datetime] = {}
    told = evidence.landings_told("batch-held")
    # A request has one batch: that one waits for people.
    for_people = {each for each in told if each.startswith(REQUEST_PREFIX)}
    for batch in evidence.batches:
        zone, frozen_at = batch.dataset.partition, batch.dataset.frozen_at
        yield batch, since.get(zone, frozen_at)
        if batch.result.outcome == "held" and landing_of(batch.batch) not in for_people:
            since.setdefault(zone, frozen_at)
        else:
            since.pop(zone, None)
