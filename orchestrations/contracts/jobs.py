"""Azure ML: the cluster, the job, and the job's outputs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from orchestrations.configuration.pipeline import ComputeOption
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import QUICK, ActivityRequest, Contract, Done, Failure
from orchestrations.contracts.datasets import DataAsset
from orchestrations.contracts.runs import CancelRequest, RunRequest

JobState = Literal["queued", "running", "completed", "failed", "cancelled"]


class Capacity(Contract):
    """A cluster for the job, and the nodes that the job gets there."""

    cluster: str
    nodes: int
    ready: bool = True
    """False while the cluster is being created or changed: call again."""


class EnsureCapacity(ActivityRequest[Capacity]):
    """Input of `ensure_capacity`: the compute options that may be tried, best first."""

    options: list[ComputeOption]
    requested: str | None = None
    """The cluster that this run's previous call requested, if it was not ready."""


class Job(Contract):
    """A submitted Azure ML job."""

    name: str
    state: JobState
    champion: str | None = None
    """Model version that the job also scores, if there was a champion at submission."""
    champion_lead: float = 0.0
    """By how much the best of the last champions beat the current one, on the gate's metric."""
    cancel: CancelRequest | None = None
    studio_url: str | None = None
    results_container: str
    """Container of the workspace's default datastore at submission: the job writes its
    results there, so that reading them needs no request to Azure ML."""


class SubmitJob(ActivityRequest[Job]):
    """Input of `submit_job`."""

    run: str
    request: RunRequest
    capacity: Capacity
    asset: DataAsset


class GetJob(ActivityRequest[Job]):
    """Input of `get_job`."""

    # It is asked again and again, and the caller counts the failures.
    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = QUICK

    job: str


class CancelJob(ActivityRequest[Done]):
    """Input of `cancel_job`."""

    # The caller asks again until it is accepted.
    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = QUICK

    job: str


class JobDiagnosis(Contract):
    """Why a job failed, according to Azure ML and the job's logs."""

    message: str | None = None
    """Azure ML's explanation."""
    rank: int | None = None
    exit_code: int | None = None
    log: tuple[str, ...] = ()
    """The last lines of the failed rank's log."""
    studio_url: str | None = None


class DiagnoseJob(ActivityRequest[JobDiagnosis]):
    """Input of `diagnose_job`."""

    # A run does without it.
    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = QUICK

    job: str


class Results(Contract):
    """A job's outputs."""

    metrics: dict[str, float]
    """The requested metrics that exist; non-finite ones are left out."""
    failure: Failure | None = None
    bad_files: int = 0
    record: str
    """Blob in the records container with all metrics, or the error, in full."""
    cancel: CancelRequest | None = Field(default=None, exclude_if=lambda it: it is None)
    """A request to cancel the run, which was made before its results were read."""

    _of_earlier_releases = ignore_fields("speed")


class ReadResults(ActivityRequest[Results]):
    """Input of `read_results`."""

    pipeline: str
    run: str
    container: str
    """`Job.results_container`, in the account of the app setting `WorkspaceStorage`."""
    completed: bool
    """Whether the job completed. If so, its metrics are read, otherwise its error."""
    metrics: list[str]
