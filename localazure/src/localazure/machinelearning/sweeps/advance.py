"""One pass over a sweep: reads its trials, and applies what `sweep.next_step` decides."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.jobs.named_outputs import BEST_TRIAL
from localazure.machinelearning.jobs.parents import CANCELLED_BY_PARENT, ParentPass
from localazure.machinelearning.jobs.resolution import check_command
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.states import TERMINAL, JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobKind,
    list_children,
    list_unfinished_parents,
)
from localazure.machinelearning.jobs.tracking import read_metric
from localazure.machinelearning.store import get_resource
from localazure.machinelearning.sweeps import sweep as sweeps
from localazure.machinelearning.sweeps.early_termination import Trial
from localazure.machinelearning.sweeps.sweep import Sweep
from localazure.sqlite.query import Query

POLICY_SECONDS = 1.0
"""The interval at which early termination policies read the metrics of running trials."""

_ENDED_EARLY = StopOrder(
    code="EarlyTermination", message="the early termination policy of the sweep ended this trial"
)
_SWEEP_FAILED = StopOrder(code="SweepFailed", message="the sweep of this trial failed")
_TIMED_OUT = StopOrder(code="JobTimedOut", message="the sweep ran longer than its limits.timeout")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrialMetrics:
    """The metrics of a sweep's trials at one moment."""

    ended: frozenset[str] = frozenset()
    """Trials that had ended before their metrics were read: their metrics are complete."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


def read_trial_metrics(query: Query, store: Path) -> dict[str, TrialMetrics]:
    """Sweep → metrics of its trials. Reads files, so call it outside the transaction.

    A sweep whose metrics cannot be read is left out: it waits for them.
    """
    metrics: dict[str, TrialMetrics] = {}
    for parent in list_unfinished_parents(query):
        if parent.kind is not JobKind.SWEEP:
            continue
        try:
            metrics[parent.name] = _read_sweep(query, store, parent.name)
        except (OSError, ValueError) as error:
            logger.warning("the metrics of sweep %s cannot be read: %s", parent.name, error)
    return metrics


@dataclass
class SweepPass(ParentPass):
    """One pass over one sweep."""

    sibling_failed = _SWEEP_FAILED

    metrics: TrialMetrics

    def _advance(self) -> None:
        parent, metrics = self.parent, self.metrics
        sweep = sweeps.parse_sweep(parent.name, self.resource.properties)
        children = {child.name: child for child in self.children}
        trials = [
            Trial(name=name, status=child.status, values=metrics.values.get(name, ()))
            for name, child in children.items()
        ]
        step = sweeps.next_step(sweep, parent.status, trials)
        for name in step.cancel:
            self._cancel_child(children[name], CANCELLED_BY_PARENT)
        for name in step.end_early:
            self._cancel_child(children[name], _ENDED_EARLY)
        for number in step.start:
            self._submit(sweep, number)
        if step.status is None:
            self._watch_time(sweep)
        elif metrics.ended.issuperset(children):
            self._finish(sweep, trials, step.status)
        else:
            self.result.has_changed = True  # read the trials' last metrics first

    def _submit(self, sweep: Sweep, number: int) -> None:
        parent = self.parent.name
        values = sweep.draw(parent, number)
        properties = sweeps.trial_properties(parent, self.resource.properties, number, values)
        name = sweeps.trial_name(parent, number)
        job = check_command(self.query, name, properties)
        self._insert(replace(job, parent=parent, step=str(number)), properties)

    def _finish(self, sweep: Sweep, trials: list[Trial], status: JobStatus) -> None:
        best = sweeps.best_trial(sweep, trials)
        if best is not None:
            name, score = best
            own: dict[str, Any] = self.resource.properties.get("properties") or {}
            properties = {**own, BEST_TRIAL: name, "score": json.dumps(score)}
            self._put_properties(properties=properties)
        if status is JobStatus.FAILED:
            message = f"all {len(trials)} trials failed or were cancelled"
            self.jobs.set_error(self.parent.name, "SweepFailed", message)
        self._end(status)

    def _watch_time(self, sweep: Sweep) -> None:
        parent = self.parent
        if parent.status is not JobStatus.RUNNING or parent.started_at is None:
            return
        deadline = parent.started_at + sweep.timeout_seconds
        if self.jobs.now >= deadline:
            self._cancel(parent.name, _TIMED_OUT)
            return
        self.result.wake(deadline)
        if sweep.policy is not None:
            self.result.wake(self.jobs.now + POLICY_SECONDS)


def _read_sweep(query: Query, store: Path, parent: str) -> TrialMetrics:
    resource = get_resource(query, JOBS, parent)
    children = list_children(query, parent)
    properties: dict[str, Any] = {} if resource is None else resource.properties
    objective: dict[str, Any] = properties.get("objective") or {}
    metric = str(objective.get("primaryMetric"))
    experiment = properties.get("experimentName") or DEFAULT_EXPERIMENT
    return TrialMetrics(
        ended=frozenset(child.name for child in children if child.status in TERMINAL),
        values={
            child.name: read_metric(store, experiment, child.name, metric) for child in children
        },
    )
