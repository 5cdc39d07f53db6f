"""The orchestration `retraining`: its input and its activities: cluster, job, model, record."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from orchestrations.configuration.checks import CheckStage, Stage
from orchestrations.configuration.parameters import Value
from orchestrations.configuration.pipeline import ComputeOption, Pipeline
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import (
    ActivityRequest,
    Contract,
    Done,
    Failure,
    QuickRequest,
    Traceparent,
)
from orchestrations.contracts.capacity import Refusal
from orchestrations.contracts.checked import Checked
from orchestrations.contracts.comparison import Comparison, Judged
from orchestrations.contracts.datasets import DataAsset, Dataset
from orchestrations.contracts.reproductions import Reproduction
from orchestrations.contracts.run_states import RunState
from orchestrations.contracts.runs import (
    CancelRequest,
    Model,
    Redrive,
    RunCost,
    RunRequest,
    RunStatus,
)

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
    champion_score: float | None = Field(default=None, exclude_if=lambda it: it is None)
    """Of a champion check: the metric that the champion had when it was registered."""
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


class GetJob(QuickRequest[Job]):
    """Input of `get_job`.

    It is asked again and again, and the caller counts the failures.
    """

    job: str


class CancelJob(QuickRequest[Done]):
    """Input of `cancel_job`.

    The caller asks again until it is accepted.
    """

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


class DiagnoseJob(QuickRequest[JobDiagnosis]):
    """Input of `diagnose_job`.

    A run does without it.
    """

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
    checked: Checked | None = Field(default=None, exclude_if=lambda it: it is None)
    """Of a data check: its `checks.json`."""
    comparison: Comparison | None = Field(default=None, exclude_if=lambda it: it is None)
    """Of a training: its `comparison.json`."""

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
    stage: Stage = Field(default="training", exclude_if=lambda it: it == "training")
    """A data check has `checks.json` instead of metrics."""


class RegisterModel(ActivityRequest[Model]):
    """Input of `register_model`, with the lineage that the model keeps."""

    run: str
    pipeline: Pipeline
    dataset: Dataset
    round: int = Field(default=1, ge=1, exclude_if=lambda it: it == 1)
    """The round of training on the dataset version."""
    results: str
    """Blob with all metrics, which become properties of the model."""
    champion: str | None = None
    """The model version that it was compared with."""
    gain: float | None = None
    """How much better than the champion it is on the same held-out data, on the gate's metric."""
    approval: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Who approved the registration, and why, if the pipeline asks."""
    challenger: bool = False
    """Registered for comparison only: it was not promoted, and never becomes the champion."""
    configuration: str | None = None
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why the run was requested; None: data landed."""
    difference: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """As in `RunRequest`."""
    parameters: dict[str, Value] = Field(default={}, exclude_if=lambda it: not it)
    redrive: Redrive | None = None
    traceparent: Traceparent = None
    """The run's span."""


class Waiting(Contract):
    """The state of a run's wait for its job, kept over `continue_as_new`."""

    job: Job
    state_since: datetime
    polls: int = 0
    cancel_sent: bool = False


class AwaitingNodes(Contract):
    """The state of a run's wait for nodes, kept over `continue_as_new`."""

    asset: DataAsset
    since: datetime
    refusals: tuple[Refusal, ...] = ()
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why it waits, as last shown in its status."""
    checked: bool = Field(default=False, exclude_if=lambda it: not it)
    """It does not wait yet: a check was passed, and the next stage begins."""

    _of_earlier_releases = ignore_fields("ranked")


class RunInput(Contract):
    """Input of `retraining`, also when it continues as new while it waits."""

    request: RunRequest
    awaiting: AwaitingNodes | None = Field(default=None, exclude_if=lambda it: it is None)
    """Set while it waits for nodes."""
    waiting: Waiting | None = None
    """Set while it waits for its job."""
    ending: Failure | None = None
    """Set while it ends its job, after this failure."""


class RunStep(Contract):
    """A state of the run and its begin; it ends where the next step begins."""

    state: RunState
    stage: CheckStage | None = Field(default=None, exclude_if=lambda it: it is None)
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
    parameters: dict[str, Value] | None = Field(default=None, exclude_if=lambda it: it is None)
    """The value of each parameter that the pipeline declares."""
    cost: RunCost | None = Field(default=None, exclude_if=lambda it: it is None)
    """The cost of its job's nodes; of a run in no queue, when it has ended."""
    data_check: Checked | None = Field(default=None, exclude_if=lambda it: it is None)
    champion_check: Checked | None = Field(default=None, exclude_if=lambda it: it is None)
    judged: Judged | None = Field(default=None, exclude_if=lambda it: it is None)
    """The gate's verdict, if the job wrote `comparison.json`."""
    reproduction: Reproduction | None = Field(default=None, exclude_if=lambda it: it is None)
    """The answer of a run that reproduces a model."""
    superseded_by: str | None = None
    """The run that has claimed a newer dataset."""
    next_attempt_at: datetime | None = None
    """When the next attempt is started, if one is scheduled."""
    traceparent: Traceparent = None
    """The batch's span."""

    _of_earlier_releases = ignore_fields("ranking", "speed")

    @property
    def known_cost(self) -> RunCost | None:
        """The cost; that of a run in a queue may be in its status only."""
        return self.cost or self.status.cost


class RecordRun(QuickRequest[Done]):
    """Input of `record_run`: what this generation of the run's orchestration knows.

    The record is only for people: long retries would cost the run's deadlines more.
    """

    LIMIT_SECONDS: ClassVar[float] = 30.0

    record: RunRecord
