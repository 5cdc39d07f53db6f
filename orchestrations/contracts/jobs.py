"""Azure ML: the cluster, the job, and what the job left."""

from __future__ import annotations

from typing import Literal

from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.runs import RunRequest
from orchestrations.pipeline import Rung

JobState = Literal["queued", "running", "completed", "failed", "cancelled"]


class Job(Contract):
    """A submitted Azure ML job."""

    name: str
    state: JobState
    champion: str | None = None
    """Model version that the job scores beside its own, if there was one at submission."""
    error: str | None = None
    cancel_requested: bool = False
    studio_url: str | None = None


class Capacity(Contract):
    """A cluster that can hold the job, and the nodes that the job gets there."""

    cluster: str
    nodes: int


class EnsureCapacity(ActivityRequest[Capacity]):
    """Input of `ensure_capacity`: the rungs that may be tried, best first."""

    rungs: list[Rung]


class SubmitJob(ActivityRequest[Job]):
    """Input of `submit_job`."""

    run: str
    request: RunRequest
    capacity: Capacity
    asset: DataAsset


class GetJob(ActivityRequest[Job]):
    """Input of `get_job`."""

    job: str


class CancelJob(ActivityRequest[Done]):
    """Input of `cancel_job`."""

    job: str


class Results(Contract):
    """What a job left: `metrics.json`, or `error.json`."""

    metrics: dict[str, float]
    failure: Failure | None = None
    bad_files: int = 0


class ReadResults(ActivityRequest[Results]):
    """Input of `read_results`."""

    pipeline: str
    run: str
