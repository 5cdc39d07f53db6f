"""What crosses the durable boundary: ids, URIs and numbers, never lists of blobs.

Each contract is frozen, refuses what it does not know, and carries the version of its schema, so
that a history written by an older release is either understood or refused by name.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from orchestrations.pipeline import Pipeline, Rung

RunState = Literal[
    "registering",
    "provisioning",
    "submitting",
    "queued",
    "running",
    "judging",
    "publishing",
    "succeeded",
    "retrying",
    "rejected",
    "failed",
    "cancelled",
    "superseded",
]
TERMINAL_RUN_STATES: frozenset[RunState] = frozenset(
    {"succeeded", "retrying", "rejected", "failed", "cancelled", "superseded"}
)
OpenedBy = Literal["event", "request", "reconciliation"]
JobState = Literal["queued", "running", "completed", "failed", "cancelled"]
NotificationKind = Literal["started", "succeeded", "retrying", "failed", "cancelled", "superseded"]


class Contract(BaseModel):
    """Base of all contracts: a frozen record with a schema version."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = Field(default=1, ge=1, le=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types only, as the durable boundary carries them."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """Parse what `to_dict` wrote.

        Raises:
            pydantic.ValidationError: a field is missing, unknown or of the wrong type.
        """
        return cls.model_validate(document)


class Failure(Contract):
    """A failure as data: what an activity returns for an expected, permanent one."""

    type: str
    message: str
    permanent: bool


class Survey(Contract):
    """One look at a landing zone."""

    blobs: int
    bytes: int
    newest: datetime | None
    """Last modification in the zone by the storage service's clock; None when it is empty."""
    marker: datetime | None
    """When the marker blob was last written, if the pipeline names one and it is there."""
    fingerprint: str
    """Hash over every path and ETag: two looks with one fingerprint saw the same zone."""


class Dataset(Contract):
    """A frozen manifest."""

    version: str
    blobs: int
    bytes: int
    frozen_at: datetime
    fingerprint: str
    manifest_path: str
    """Folder in the records container that holds `manifest.jsonl` and `MLTable`."""


class LandingRequest(Contract):
    """Input of the orchestrator `landing`."""

    pipeline: Pipeline
    opened_by: OpenedBy
    settled: bool = False
    """The caller says that the batch is whole: freeze at once."""
    callback_url: str | None = None
    opened_at: datetime | None = None
    """Set when the landing goes on in a new generation before it has settled."""


class LandingStatus(Contract):
    """Custom status of `landing`. A hint must be raised only in phase `closing`."""

    phase: Literal["settling", "training", "closing"]
    pipeline: str
    opened_at: datetime
    run: str | None = None


class LandingResult(Contract):
    """What became of a landing's last window."""

    pipeline: str
    outcome: Literal["started", "duplicate", "empty"]
    run: str | None = None
    dataset_version: str | None = None


class RunRequest(Contract):
    """Input of the orchestrator `retraining`, and the body of a message on the queue `retries`."""

    pipeline: Pipeline
    dataset: Dataset
    attempt: int = Field(ge=1)
    callback_url: str | None = None


class Job(Contract):
    """A submitted Azure ML job."""

    name: str
    state: JobState
    champion: str | None = None
    """Model version that the job scores beside its own, if there was one at submission."""
    error: str | None = None
    cancel_requested: bool = False
    studio_url: str | None = None


class Model(Contract):
    """A registered model."""

    name: str
    version: str
    path: str


class Waiting(Contract):
    """Where a run's wait for its job goes on after `continue_as_new`."""

    job: Job
    state_since: datetime
    polls: int = 0
    cancel_sent: bool = False


class RunInput(Contract):
    """What `retraining` is started with, or starts itself with again while it waits."""

    request: RunRequest
    waiting: Waiting | None = None


class RunStatus(Contract):
    """Custom status of `retraining`: what `GET /api/runs/{id}` tells."""

    id: str
    pipeline: str
    attempt: int
    dataset_version: str
    state: RunState
    since: datetime
    job: str | None = None
    metrics: dict[str, float] | None = None
    model: Model | None = None
    error: Failure | None = None


class SurveyZone(Contract):
    """Input of `survey_zone`."""

    pipeline: Pipeline


class FreezeManifest(Contract):
    """Input of `freeze_manifest`."""

    pipeline: Pipeline
    frozen_at: datetime


class ClaimDataset(Contract):
    """Input of `claim_dataset`: may this window train on that version?"""

    request: RunRequest
    """The first attempt: what a run needs that was claimed but never came to be."""
    run: str
    window: str


class Claim(Contract):
    """The one window that may train on a dataset version, and its run: kept for ever."""

    run: str
    window: str


class RecordWindow(Contract):
    """Input of `record_window`: how a landing's window ended, for `explain`."""

    window: str
    opened_at: datetime
    opened_by: OpenedBy
    dataset: Dataset
    result: LandingResult


class RegisterDataset(Contract):
    """Input of `register_dataset`."""

    pipeline: Pipeline
    dataset: Dataset


class DataAsset(Contract):
    """A registered data asset."""

    name: str
    version: str


class EnsureCapacity(Contract):
    """Input of `ensure_capacity`: the rungs that may be tried, best first."""

    rungs: list[Rung]


class Capacity(Contract):
    """A cluster that can hold the job, and the nodes that the job gets there."""

    cluster: str
    nodes: int


class SubmitJob(Contract):
    """Input of `submit_job`."""

    run: str
    request: RunRequest
    capacity: Capacity
    asset: DataAsset


class JobReference(Contract):
    """Input of `get_job` and `cancel_job`."""

    job: str


class ReadResults(Contract):
    """Input of `read_results`."""

    pipeline: str
    run: str


class Results(Contract):
    """What a job left: `metrics.json`, or `error.json`."""

    metrics: dict[str, float]
    failure: Failure | None = None
    bad_files: int = 0


class QuarantineFiles(Contract):
    """Input of `quarantine_files`: leave the files of this run's error.json out from now on."""

    pipeline: str
    run: str
    dataset: Dataset


class RegisterModel(Contract):
    """Input of `register_model`, with the lineage that the model keeps."""

    run: str
    pipeline: Pipeline
    dataset: Dataset
    metrics: dict[str, float]


class CheckSuperseded(Contract):
    """Input of `check_superseded`: has a newer dataset been claimed since?"""

    pipeline: str
    dataset: Dataset


class Superseded(Contract):
    """The newer run, if there is one."""

    by: str | None


class ScheduleRetry(Contract):
    """Input of `schedule_retry`: start this request when the delay is over."""

    request: RunRequest
    delay_seconds: float


class DeadLetter(Contract):
    """Input of `dead_letter`: the request as it failed, and why."""

    run: str
    request: RunRequest
    failure: Failure


class Notification(Contract):
    """Something that happened to a run, told on every channel of its pipeline."""

    id: str
    kind: NotificationKind
    at: datetime
    status: RunStatus
    callback_url: str | None = None


class Notify(Contract):
    """Input of `publish_notification`."""

    pipeline: Pipeline
    notification: Notification


class Done(Contract):
    """Result of an activity that has nothing to tell but that it is done."""
