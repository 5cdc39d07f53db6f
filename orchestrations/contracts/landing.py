"""The orchestration `landing`: its input, status, result and activities."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, field_validator

from orchestrations.configuration.parameters import Value
from orchestrations.configuration.pipeline import Pipeline, Settle
from orchestrations.configuration.section import ignore_fields
from orchestrations.contracts.base import ActivityRequest, Contract, Done, Traceparent
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.holds import HoldReason
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS, RunRequest

OpenedBy = Literal["event", "request", "reconciliation", "release"]
LandingPhase = Literal["settling", "training", "closing"]
BatchOutcome = Literal[
    "started",
    "duplicate",
    "empty",
    "only-deletions",
    "held",
    "overdue",
    "invalid-manifest",
    "not-deployed",
]
LandingAlert = Literal[
    "landing-overdue", "manifest-invalid", "batch-held", "landing-failed", "pipeline-not-deployed"
]


class BatchTrace(Contract):
    """The span that the span of a traced batch is connected to: at most one of the two."""

    parent: Traceparent = None
    """The span of the event or request that opened the batch."""
    follows: Traceparent = None
    """The span of the previous batch."""


class LandingRequest(Contract):
    """Input of the orchestrator `landing`.

    It has the pipeline's name only: files that are deployed while it lives apply to what it freezes
    afterwards.
    """

    pipeline: str
    partition: str | None = None
    """Key of the partition that is the batch, where each is one."""
    opened_by: OpenedBy
    settled: bool = False
    """The caller says that the batch is whole: freeze at once."""
    receiver: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The webhook of the pipeline that the request names; it is told of the runs."""
    reason: str | None = Field(
        default=None,
        max_length=START_REASON_LIMIT_CHARACTERS,
        exclude_if=lambda it: it is None,
    )
    """Why training was requested, such as a monitor's signal; the model's lineage keeps it."""
    parameters: dict[str, Value] = Field(default={}, exclude_if=lambda it: not it)
    """The values that the request set, of those that `parameters` in pipeline.yml declares."""
    opened_at: datetime | None = None
    """Set when the landing continues as new before the batch has settled."""
    trace: BatchTrace | None = Field(default=None, exclude_if=lambda it: it is None)

    _of_earlier_releases = ignore_fields("callback_url")

    @property
    def has_reason(self) -> bool:
        """Whether it was requested for a reason: it is then trained on, however little changed."""
        return self.reason is not None or bool(self.parameters)

    @field_validator("pipeline", mode="before")
    @classmethod
    def _name_of(cls, value: Any) -> Any:
        """The name; inputs of earlier releases have the whole pipeline."""
        return value.get("name") if isinstance(value, dict) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - not validated yet


class LandingStatus(Contract):
    """Custom status of `landing`. Events wake it up in phase `closing` only."""

    phase: LandingPhase
    pipeline: str
    partition: str | None = None
    opened_at: datetime
    run: str | None = None
    traceparent: Traceparent = None
    """The batch's own span: events that open or join the batch appear in its trace."""


class LandingResult(Contract):
    """How a batch ended."""

    pipeline: str
    outcome: BatchOutcome
    run: str | None = None
    dataset_version: str | None = None
    reason: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Why a duplicate started nothing, and how to train on the same content again."""


class ZoneActivity(Contract):
    """The last events in a zone, as known without a listing."""

    newest_event_at: datetime | None
    """When the newest event happened, by the storage service's clock."""
    marker_at: datetime | None
    """When the marker blob was last written, if the pipeline names one and it is there."""


class SettlingRules(Contract):
    """What decides whether a batch is complete."""

    settle: Settle
    last_blob: str | None
    """Name of the marker, or of the uploader's manifest."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> SettlingRules:
        """The rules of a pipeline."""
        return cls(settle=pipeline.settle, last_blob=pipeline.source.last_blob)


class SettlingZone(ZoneActivity):
    """A zone's activity, with the rules that are deployed when it is read."""

    rules: SettlingRules
    is_released: bool = Field(default=False, exclude_if=lambda it: not it)
    """Whether a person has released its held batch, and no listing has followed."""


class ReadZoneActivity(ActivityRequest[SettlingZone]):
    """Input of `read_zone_activity`."""

    pipeline: str
    partition: str | None


class BatchComparison(Contract):
    """A batch compared with the last trained one of the same zone or partition."""

    last_trained_blobs: int | None
    """Quarantined files included; None if no batch was trained on."""
    only_deletions: bool
    """Whether the batch is the last trained one without some of its blobs."""
    data_changed_in_a_row: int
    """How many runs in a row have ended because their data was overwritten."""
    released: bool
    """Whether a person has released a batch with this content."""
    paused: str | None = None
    """A sentence: who paused the pipeline, since when and why; None when it is not paused."""
    # Left out where they are not set, so that the histories of other pipelines do not change.
    failed_checks: tuple[str, ...] = Field(default=(), exclude_if=lambda it: not it)
    """A sentence for each rule of `checks` that the batch breaks."""
    too_little: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """A sentence: how much has changed; None if that reaches `settle.minimum_change`."""
    difference: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """A sentence: what differs from the last trained batch."""
    waiting_since: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
    """Since when batches of the zone have waited for `settle.minimum_change`."""
    base: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The last trained version, if the pipeline has checks with a job."""
    new_share: float | None = Field(default=None, exclude_if=lambda it: it is None)
    """The share of the files that are new or have other content since then, from 0 to 1."""


class CompareBatch(ActivityRequest[BatchComparison]):
    """Input of `compare_batch`."""

    pipeline: str
    # Left out where it is not set, so that the histories of other pipelines do not change.
    configuration: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Hash of the freeze's configuration, if it has rules for data."""
    dataset: Dataset


class HoldBatch(ActivityRequest[Done]):
    """Input of `hold_batch`."""

    pipeline: str
    batch: str
    dataset: Dataset
    reason: HoldReason
    message: str


class SupersededBatch(Contract):
    """A held batch that a newer batch of the same zone has replaced."""

    batch: str
    version: str
    frozen_at: datetime


class HeldBatch(Contract):
    """The record of a zone or partition that waits for a person, or for the end of a pause.

    All batches that are held for the same reason, one after another, share it. Records of earlier
    releases lack the fields with defaults.
    """

    pipeline: str
    batch: str
    dataset: Dataset
    """The newest batch."""
    reason: HoldReason
    message: str
    since: datetime | None = None
    """When the first batch was frozen; None: `dataset` is the only one."""
    count: int = 1
    superseded: tuple[SupersededBatch, ...] = ()
    """Earlier batches whose manifests are still there."""
    is_released: bool = False


class AlertOperators(ActivityRequest[Done]):
    """Input of `alert_operators`: an occurrence of a trouble, for the topic `ops-alerts`.

    Occurrences with one `alert_id` are one trouble; its first one is an alert.
    """

    kind: LandingAlert
    alert_id: str
    pipeline: str
    at: datetime
    details: dict[str, str | int | float | None]
    traceparent: Traceparent = None


class DatasetClaim(Contract):
    """The idempotency record of a round of training: which batch has it, and as which run."""

    run: str
    batch: str
    round: int = Field(default=1, ge=1, exclude_if=lambda it: it == 1)
    why_not: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """Only in an answer: why a batch did not get a further round, and how to ask again."""


class ClaimedRun(Contract):
    """The record of a claim."""

    claim: DatasetClaim
    request: RunRequest
    """The first attempt of its round: the input of the run, if it was never started."""


class ClaimDataset(ActivityRequest[DatasetClaim]):
    """Input of `claim_dataset`: may this batch train on that version?"""

    request: RunRequest
    """The first attempt of the first round."""
    batch: str
    opened_by: OpenedBy = "event"
    released: bool = Field(default=False, exclude_if=lambda it: not it)
    """Whether a person has released a batch with this content."""


class RecordBatch(ActivityRequest[Done]):
    """Input of `record_batch`, and the record: how a batch ended."""

    batch: str
    opened_at: datetime
    opened_by: OpenedBy
    dataset: Dataset
    marker_at: datetime | None = None
    """When the marker that completed the batch was written; None if there was none."""
    result: LandingResult
    trace: BatchTrace | None = Field(default=None, exclude_if=lambda it: it is None)
    concluded_at: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
    """When a traced batch ended, by the orchestrator's clock."""
    base: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """As in `BatchComparison`: it is the last trained version again if a check ends the run."""


class CountDataChanged(ActivityRequest[Done]):
    """Input of `count_data_changed`."""

    pipeline: str
    dataset: Dataset
    in_a_row: int


class LastBatch(Contract):
    """The record of the last batch of a zone or partition."""

    batch: str
    dataset: Dataset
    marker_at: datetime | None
    last_trained: Dataset | None
    """The last batch that was trained on, or whose content had been trained on before."""
    trained_before: tuple[Dataset, ...] = Field(default=(), exclude_if=lambda it: not it)
    """What counts as the last trained one, in order, if a check ends the run of `last_trained`."""
    data_changed_in_a_row: int
