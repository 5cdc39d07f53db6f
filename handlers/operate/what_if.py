"""Replay of recorded batches through another `pipeline.yml`, by the app's own decisions. Pure.

Batches, metrics and times are those that were recorded. What no record shows, such as the model of
a batch that was never trained on, is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from handlers.landing.comparing import apply_rules
from handlers.platform.run_records import node_hours
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.comparison import Comparison
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.difference import Difference
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import BatchComparison, RecordBatch
from orchestrations.contracts.training import RunRecord
from orchestrations.errors import InvalidResults
from orchestrations.landing.decisions import Hold, decide
from orchestrations.training.judging import judge

Outcome = Literal["trained", "held", "ignored", "duplicate", "unknown"]
Model = Literal["promoted", "not-promoted", "rolled-back", "unknown", "none"]
NOT_REPLAYED = ("source", "dataset", "compute", "queue", "retry", "limits", "deploy", "job")
"""Sections whose change has an effect that no record shows."""
DifferenceOf = Callable[[str | None, str], Difference | None]
"""Earlier and later version → their difference; None if a manifest was removed."""


@dataclass(frozen=True, kw_only=True)
class PastBatch:
    """A batch as it was recorded, with the last attempt of its run."""

    batch: RecordBatch
    run: RunRecord | None = None
    metrics: dict[str, float] | None = None
    """All metrics of the run; None if it left none, or they were removed."""
    comparison: Comparison | None = None
    """Of its model with the champion, if its job wrote one."""
    has_reason: bool = False
    is_released: bool = False
    is_rolled_back: bool = False
    """Whether the rollout of its model was rolled back."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a batch would have become."""

    past: PastBatch
    outcome: Outcome
    why: str
    model: Model = "none"

    @property
    def node_hours(self) -> float | None:
        """The time of its job, times its nodes; None if it was never trained on."""
        if self.outcome != "trained":
            return 0.0
        return None if self.past.run is None else node_hours(self.past.run)


@dataclass
class _Zone:
    trained: Dataset | None = None
    waiting_since: datetime | None = None
    versions: set[str] = field(default_factory=set[str])


def replay(
    pipeline: Pipeline,
    batches: Iterable[PastBatch],
    difference_of: DifferenceOf,
    before: Mapping[str | None, Dataset] = MappingProxyType({}),
) -> Iterator[Replayed]:
    """Decide on batches, oldest first, as the app with this pipeline would have.

    `before` has the last trained batch of each zone from before them. A hold by a person's pause is
    no rule of the file: such a batch counts as not held.
    """
    zones = {key: _Zone(trained=it, versions={it.version}) for key, it in before.items()}
    champion = _Champion()
    for past in batches:
        dataset = past.batch.dataset
        zone = zones.setdefault(dataset.partition, _Zone())
        yield champion.judged(pipeline, _replay_batch(pipeline, zone, past, difference_of))


def _replay_batch(
    pipeline: Pipeline, zone: _Zone, past: PastBatch, difference_of: DifferenceOf
) -> Replayed:
    dataset, result = past.batch.dataset, past.batch.result
    base = None if zone.trained is None else zone.trained.version
    difference = difference_of(base, dataset.version)
    if difference is None:
        return Replayed(past=past, outcome="unknown", why="a manifest was removed")
    if dataset.version in zone.versions and result.outcome != "started":
        return Replayed(past=past, outcome="duplicate", why="the same content was trained on")
    comparison = _comparison(pipeline, zone, past, difference)
    decision = decide(dataset, comparison, pipeline, has_reason=past.has_reason)
    if decision == "ignore":
        return Replayed(past=past, outcome="ignored", why="only deletions")
    if isinstance(decision, Hold):
        if rule_of_hold(decision.reason).ended_by == "growth":
            zone.waiting_since = zone.waiting_since or dataset.frozen_at
        return Replayed(past=past, outcome="held", why=decision.message)
    zone.trained, zone.waiting_since = dataset, None
    zone.versions.add(dataset.version)
    return Replayed(past=past, outcome="trained", why="" if base is None else str(difference))


def _comparison(
    pipeline: Pipeline, zone: _Zone, past: PastBatch, difference: Difference
) -> BatchComparison:
    trained, dataset = zone.trained, past.batch.dataset
    comparison = BatchComparison(
        last_trained_blobs=None if trained is None else trained.blobs + trained.quarantined,
        only_deletions=False,
        data_changed_in_a_row=0,
        released=past.is_released,
        waiting_since=zone.waiting_since,
    )
    if trained is not None and trained.version == dataset.version:
        return comparison
    return apply_rules(comparison, trained, dataset, difference, pipeline)


class _Champion:
    """The champion of the replay; it may be another than the recorded one."""

    def __init__(self) -> None:
        self._version: str | None = None
        self._is_known = True
        self._is_first = True

    def judged(self, pipeline: Pipeline, replayed: Replayed) -> Replayed:
        """A decision with what would have become of its model."""
        if replayed.outcome != "trained":
            return replayed
        model, why = self._judge(pipeline, replayed.past)
        if model == "promoted":
            run = replayed.past.run
            registered = None if run is None else run.status.model
            self._is_known = registered is not None
            self._version = None if registered is None else registered.version
            if replayed.past.is_rolled_back:
                model = "rolled-back"
        elif model == "unknown":
            self._is_known = False
        text = "; ".join(filter(None, (replayed.why, why)))
        return replace(replayed, why=text, model=model)

    def _judge(self, pipeline: Pipeline, past: PastBatch) -> tuple[Model, str]:
        run, metrics = past.run, past.metrics
        if run is None:
            return "unknown", "it was never trained on"
        if metrics is None:
            return "unknown", f"run {run.status.id} left no metrics"
        if self._is_first:  # the champion from before the first batch is the recorded one
            self._version, self._is_first = run.champion, False
        is_same = self._is_known and run.champion == self._version
        try:
            verdict = judge(
                pipeline.gate, metrics, champion=run.champion, comparison=past.comparison
            )
        except InvalidResults as error:
            return "unknown", str(error)
        if verdict.is_above_floor and not is_same:
            return "unknown", "it was compared with another champion"
        return ("promoted" if verdict.promoted else "not-promoted"), verdict.reason


def recorded_outcome(past: PastBatch) -> Outcome:
    """What the batch became."""
    match past.batch.result.outcome:
        case "started":
            return "trained"
        case "held" | "duplicate" as outcome:
            return outcome
        case "only-deletions":
            return "ignored"
        case _:
            return "unknown"


def recorded_model(past: PastBatch) -> Model:
    """What became of the model of the batch's run."""
    if past.batch.result.outcome != "started":
        return "none"
    if past.run is None:
        return "unknown"
    if past.is_rolled_back:
        return "rolled-back"
    return "promoted" if past.run.status.state == "succeeded" else "not-promoted"


def sections_not_replayed(deployed: Pipeline, asked: Pipeline) -> list[str]:
    """The sections that differ and whose effect is unknown."""
    return [name for name in NOT_REPLAYED if getattr(deployed, name) != getattr(asked, name)]
