"""The record of a run, for the list of runs and the run's timeline."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import QUICK, ActivityRequest, Contract, Done, Traceparent
from orchestrations.contracts.jobs import JobDiagnosis
from orchestrations.contracts.runs import RunCost, RunState, RunStatus


class RunStep(Contract):
    """A state of the run and its begin; it ends where the next step begins."""

    state: RunState
    began_at: datetime


class UsedCompute(Contract):
    """The compute option of the run's job."""

    cluster: str
    size: str
    priority: str
    nodes: int


class RunRecord(Contract):
    """Facts about a run for people, updated as the run changes. No decision depends on them."""

    status: RunStatus
    started_at: datetime
    steps: tuple[RunStep, ...] = ()
    compute: UsedCompute | None = None
    job_url: str | None = None
    """The job in Azure ML studio."""
    blobs: int | None = None
    """How many blobs the dataset has."""
    bytes: int | None = None
    champion: str | None = None
    """Model version that the run's model is compared with."""
    diagnosis: JobDiagnosis | None = None
    cost: RunCost | None = Field(default=None, exclude_if=lambda it: it is None)
    """The cost of its job's nodes, if the run was in a queue."""
    superseded_by: str | None = None
    """The run that has claimed a newer dataset."""
    next_attempt_at: datetime | None = None
    """When the next attempt is started, if one is scheduled."""
    traceparent: Traceparent = None
    """The batch's span."""

    _of_earlier_releases = ignore_fields("ranking", "speed")


class RecordRun(ActivityRequest[Done]):
    """Input of `record_run`: what this generation of the run's orchestration knows."""

    # The record is only for people: long retries would cost the run's deadlines more.
    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = QUICK
    LIMIT_SECONDS: ClassVar[float] = 30.0

    record: RunRecord
