"""Drives jobs with children: sweeps and pipelines.

`advance_parents` runs in one transaction whenever something has changed. It reads the state of all
children and applies what `sweep.next_step` and `pipeline.next_step` decide. A child is inserted in
the transaction of the decision, with a name derived from its parent's. After kill -9, the next
start therefore continues with exactly the children that exist. A parent whose pass raises an
exception fails with it; the others continue.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.isolation import failure_of
from localazure.machinelearning.jobs.resolution import output_uri
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.states import TERMINAL, WAITING, JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobKind,
    JobRow,
    JobTransaction,
    NewJob,
    find_reusable,
    get_job,
    list_children,
    list_unfinished_parents,
)
from localazure.machinelearning.jobs.tracking import read_metric
from localazure.machinelearning.pipelines import graph as pipelines
from localazure.machinelearning.pipelines.placement import check_job
from localazure.machinelearning.pipelines.steps import (
    Pipeline,
    bound_outputs,
    build_step_job,
)
from localazure.machinelearning.store import Resource, get_resource, put_resource
from localazure.machinelearning.sweeps import sweep as sweeps
from localazure.machinelearning.sweeps.early_termination import Trial
from localazure.machinelearning.sweeps.sweep import Sweep
from localazure.sqlite.query import Query

POLICY_SECONDS = 1.0
"""The interval at which early termination policies read the metrics of running trials."""
REUSED = "azureml.isreused"
REUSED_JOB = "azureml.reusedrunid"

_CANCELLED_BY_PARENT = StopOrder()
_STEP_FAILED = StopOrder(code="PipelineStepFailed", message="another step of the pipeline failed")
_SWEEP_FAILED = StopOrder(code="SweepFailed", message="the sweep of this trial failed")
_ENDED_EARLY = StopOrder(
    code="EarlyTermination", message="the early termination policy of the sweep ended this trial"
)
_TIMED_OUT = StopOrder(code="JobTimedOut", message="the sweep ran longer than its limits.timeout")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrialMetrics:
    """The metrics of a sweep's trials at one moment."""

    ended: frozenset[str] = frozenset()
    """Trials that had ended before their metrics were read: their metrics are complete."""
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])


@dataclass
class ParentStep:
    """The result of `advance_parents`."""

    stop: list[str] = field(default_factory=list[str])
    """Jobs with a new stop order that must be delivered to their runners."""
    has_changed: bool = False
    """Whether another pass may find something to do."""
    wake_at: float | None = None
    """When the next timed change is due, epoch seconds."""

    def wake(self, at: float) -> None:
        """Request another pass at this time or earlier."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


def read_trial_metrics(query: Query, store: Path) -> dict[str, TrialMetrics]:
    """Sweep → metrics of its trials. Reads files, so call it outside the transaction.

    A sweep whose metrics cannot be read is left out: it waits for them.
    """
    found: dict[str, TrialMetrics] = {}
    for parent in list_unfinished_parents(query):
        if parent.kind is not JobKind.SWEEP:
            continue
        try:
            found[parent.name] = _read_sweep(query, store, parent.name)
        except (OSError, ValueError) as error:
            logger.warning("the metrics of sweep %s cannot be read: %s", parent.name, error)
    return found


def advance_parents(jobs: JobTransaction, metrics: Mapping[str, TrialMetrics]) -> ParentStep:
    """Make one pass over all unfinished parents."""
    done = ParentStep()
    for parent in list_unfinished_parents(jobs.query):
        resource = get_resource(jobs.query, JOBS, parent.name)
        if resource is None:
            continue
        begun = _begin(jobs, parent)
        known = metrics.get(parent.name, TrialMetrics())
        work = partial(_advance_parent, jobs, done, begun, resource, known)
        if (error := failure_of(work, jobs.connection)) is not None:
            _fail(jobs, parent.name, error)
            done.has_changed = True
    return done


def _advance_parent(
    jobs: JobTransaction, done: ParentStep, parent: JobRow, resource: Resource, known: TrialMetrics
) -> None:
    if parent.error_code and parent.status is JobStatus.RUNNING:
        _Advance(jobs, done, parent, resource).fail()
    elif parent.kind is JobKind.SWEEP:
        _SweepAdvance(jobs, done, parent, resource).run(known)
    else:
        _PipelineAdvance(jobs, done, parent, resource).run()


def _fail(jobs: JobTransaction, name: str, error: Exception) -> None:
    """Store the error of a parent; the next pass ends its children, and then the parent."""
    if isinstance(error, ArmError):
        logger.warning("job %s: %s", name, error.message)
        jobs.set_error(name, error.code, error.message)
    else:
        logger.error("job %s fails", name, exc_info=error)
        jobs.set_error(name, "InternalServerError", f"{type(error).__name__}: {error}")


class _Advance:
    """One pass over one parent."""

    def __init__(
        self, jobs: JobTransaction, done: ParentStep, parent: JobRow, resource: Resource
    ) -> None:
        self._jobs = jobs
        self._query = jobs.query
        self._done = done
        self._parent = parent
        self._resource = resource
        self._children = list_children(jobs.query, parent.name)

    def fail(self) -> None:
        """Fail a parent whose next child could not be created, after its children have ended."""
        running = [child for child in self._children if child.status not in TERMINAL]
        is_sweep = self._parent.kind is JobKind.SWEEP
        for child in running:
            self._cancel_once(child, _SWEEP_FAILED if is_sweep else _STEP_FAILED)
        if not running:
            self._jobs.set_status(self._parent.name, JobStatus.FAILED)

    def _cancel(self, name: str, order: StopOrder) -> None:
        if self._jobs.request_cancel(name, order):
            self._done.stop.append(name)
        self._done.has_changed = True

    def _cancel_once(self, child: JobRow, order: StopOrder) -> None:
        if child.status not in {JobStatus.CANCEL_REQUESTED, JobStatus.FINALIZING}:
            self._cancel(child.name, order)

    def _end(self, status: JobStatus) -> None:
        if status is not JobStatus.CANCELED:
            self._jobs.set_status(self._parent.name, JobStatus.FINALIZING)
        self._jobs.set_status(self._parent.name, status)
        self._done.has_changed = True

    def _insert(
        self, job: NewJob, properties: dict[str, Any], status: JobStatus = JobStatus.QUEUED
    ) -> None:
        if get_job(self._query, job.name) is not None:
            raise invalid(f"the name {job.name!r} is taken by a job of another origin")
        self._jobs.insert(job, {"properties": properties}, status)
        self._done.has_changed = True

    def _put_properties(self, **changes: Any) -> None:
        """Change properties of the parent's document."""
        document = {
            **self._resource.document,
            "properties": {**self._resource.properties, **changes},
        }
        name, connection = self._parent.name, self._jobs.connection
        put_resource(connection, JOBS, name, "", document, now=self._jobs.now)


class _SweepAdvance(_Advance):
    def run(self, metrics: TrialMetrics) -> None:
        parent = self._parent
        sweep = sweeps.parse_sweep(parent.name, self._resource.properties)
        children = {child.name: child for child in self._children}
        trials = [
            Trial(name=name, status=child.status, values=metrics.values.get(name, ()))
            for name, child in children.items()
        ]
        step = sweeps.next_step(sweep, parent.status, trials)
        for name in step.cancel:
            self._cancel_once(children[name], _CANCELLED_BY_PARENT)
        for name in step.end_early:
            self._cancel_once(children[name], _ENDED_EARLY)
        for number in step.start:
            self._submit(sweep, number)
        if step.status is None:
            self._watch_time(sweep)
        elif metrics.ended.issuperset(children):
            self._finish(sweep, trials, step.status)
        else:
            self._done.has_changed = True  # read the trials' last metrics first

    def _submit(self, sweep: Sweep, number: int) -> None:
        parent = self._parent.name
        values = sweep.draw(parent, number)
        properties = sweeps.trial_properties(parent, self._resource.properties, number, values)
        job = check_job(self._query, sweeps.trial_name(parent, number), properties)
        self._insert(replace(job, parent=parent, step=str(number)), properties)

    def _finish(self, sweep: Sweep, trials: list[Trial], status: JobStatus) -> None:
        best = sweeps.best_trial(sweep, trials)
        if best is not None:
            name, score = best
            own: dict[str, Any] = self._resource.properties.get("properties") or {}
            found = {sweeps.BEST_TRIAL: name, "score": json.dumps(score)}
            self._put_properties(properties={**own, **found})
        if status is JobStatus.FAILED:
            message = f"all {len(trials)} trials failed or were cancelled"
            self._jobs.set_error(self._parent.name, "SweepFailed", message)
        self._end(status)

    def _watch_time(self, sweep: Sweep) -> None:
        parent = self._parent
        if parent.status is not JobStatus.RUNNING or parent.started_at is None:
            return
        deadline = parent.started_at + sweep.timeout_seconds
        if self._jobs.now >= deadline:
            self._cancel(parent.name, _TIMED_OUT)
            return
        self._done.wake(deadline)
        if sweep.policy is not None:
            self._done.wake(self._jobs.now + POLICY_SECONDS)


class _PipelineAdvance(_Advance):
    def run(self) -> None:
        parent = self._parent
        pipeline = Pipeline(name=parent.name, properties=self._resource.properties)
        children = {child.step: child for child in self._children}
        # Cancelling needs no graph: that of an earlier version may be refused today.
        is_cancelled = parent.status is JobStatus.CANCEL_REQUESTED
        step = pipelines.next_step(
            {} if is_cancelled else pipelines.dependencies(pipeline.nodes),
            parent.status,
            {name: child.status for name, child in children.items()},
            continue_on_failure=bool(pipeline.settings.get("continue_on_step_failure")),
        )
        for name in step.cancel:
            order = _CANCELLED_BY_PARENT if is_cancelled else _STEP_FAILED
            self._cancel_once(children[name], order)
        names = {name: child.name for name, child in children.items()}
        for name in step.start:
            job, properties = build_step_job(self._query, pipeline, name, names)
            self._submit(pipeline, job, properties)
            names[name] = job.name
        outputs = bound_outputs(self._query, pipeline, names)
        if outputs != pipeline.outputs:
            self._put_properties(outputs=outputs)
        if step.status is JobStatus.FAILED and not parent.error_code:
            self._explain()
        if step.status is not None:
            self._end(step.status)

    def _submit(self, pipeline: Pipeline, job: NewJob, properties: dict[str, Any]) -> None:
        original = None
        if job.fingerprint is not None and not pipeline.settings.get("force_rerun"):
            original = find_reusable(self._query, job.fingerprint)
        if original is None:
            placed = check_job(self._query, job.name, properties)
            job = replace(job, cluster=placed.cluster, node_count=placed.node_count)
            self._insert(job, properties)
        else:
            self._insert(job, self._reused(properties, original), JobStatus.COMPLETED)

    def _reused(self, step: dict[str, Any], original: JobRow) -> dict[str, Any]:
        """The properties of a reused step: its outputs are the original step's outputs."""
        resource = get_resource(self._query, JOBS, original.name)
        properties = {} if resource is None else resource.properties
        own: dict[str, Any] = properties.get("properties") or {}
        root = own.get(REUSED_JOB, original.name)
        outputs = {
            key: {**entry, "uri": output_uri(root, key, entry)}
            for key, entry in (properties.get("outputs") or {}).items()
        }
        marks = {REUSED: "true", REUSED_JOB: root}
        best = {key: own[key] for key in (sweeps.BEST_TRIAL, "score") if key in own}
        return {
            **step,
            "outputs": outputs,
            "properties": {**step["properties"], **best, **marks},
        }

    def _explain(self) -> None:
        for child in self._children:
            if child.status is JobStatus.FAILED:
                message = f"step {child.step!r} (job {child.name}) failed: {child.error_message}"
                self._jobs.set_error(self._parent.name, "PipelineStepFailed", message)
                return


def _begin(jobs: JobTransaction, parent: JobRow) -> JobRow:
    """Set a waiting parent to Running: it needs no nodes."""
    if parent.status in WAITING:
        jobs.set_status(parent.name, JobStatus.PREPARING)
    if parent.status in WAITING or parent.status is JobStatus.PREPARING:
        jobs.set_status(parent.name, JobStatus.RUNNING)
    return get_job(jobs.query, parent.name) or parent


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
