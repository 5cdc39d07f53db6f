"""The schema of `pipelines/<name>/pipeline.yml`: the data, and the training that it starts.

Pure: `handlers.platform.configuration.pipeline_files` reads the files and turns a violation into an
`InvalidPipeline` that names file, line, key and value.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from orchestrations.configuration.approve import Approvals
from orchestrations.configuration.checks import (
    ChampionCheck,
    Checks,
    MetricName,
    MinimumChange,
    Stage,
)
from orchestrations.configuration.deploy import Deploy
from orchestrations.configuration.parameters import PARAMETERS_LIMIT, Parameter, ParameterName
from orchestrations.configuration.partitions import Partition, PartitionPattern
from orchestrations.configuration.section import ComputeOption, Prefix, Section, ignore_fields

# Job names: at most 255 of [a-zA-Z0-9_-]; a run id adds some 20 characters to the pipeline's
# name, and instance ids, tags and message ids are derived from it in turn.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
Container = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")]
# A webhook's retries end after 75 h, so that an outage of a long weekend is covered.
DELIVERY_DELAYS_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 86400.0, 118800.0)


class Source(Section):
    """The landing zone of the data."""

    container: Container
    """The container in which the data lands, not that of Landfall's own records. Two pipelines
    cannot have one place."""
    prefix: Prefix = ""
    """The folder of the zone; it ends with `/`. Empty for the whole container."""
    include: list[str] = Field(default=["*"])
    """Shell patterns on the path below the prefix; a blob that matches none is ignored."""
    marker: str | None = None
    """Name of the blob that marks a batch as complete, such as `_SUCCESS`. It is below the
    prefix, or, if each partition is a batch, directly in each partition. Not with `manifest`."""
    manifest: str | None = None
    """Name of a blob that lists the files of a batch, written by the uploader after all of them.
    It replaces the listing and the marker, and is where the marker would be."""
    partitions: str | None = None
    """Pattern of the folders below the prefix that are named by time, such as `date=%Y-%m-%d`; it
    has `%Y`, then `%m`, `%d` and `%H` as far as the names go. Blobs outside them are ignored."""
    batch: Literal["zone", "partition"] = "zone"
    """A batch is the whole zone, or each partition by itself (it needs `source.partitions`)."""
    deletions: Literal["ignore", "retrain"] = "ignore"
    """Whether to train on a batch that differs from the last one only by deleted blobs."""

    @field_validator("partitions")
    @classmethod
    def _parsed(cls, value: str | None) -> str | None:
        if value is not None:
            PartitionPattern(value)
        return value

    def partition_of(self, path: str) -> Partition | None:
        """The partition that holds `path` (relative to the prefix), if any."""
        return None if self.partitions is None else _pattern(self.partitions).partition_of(path)

    def partition(self, key: str) -> Partition:
        """The partition with this key.

        Raises:
            ValueError: the pipeline has no such partitions.
        """
        if self.partitions is None:
            raise ValueError(f"{key!r}: source.partitions is not set")
        return _pattern(self.partitions).partition(key)

    def partition_levels(self) -> int:
        """The number of folder levels of a partition; 0 without partitions."""
        return 0 if self.partitions is None else _pattern(self.partitions).levels

    def takes(self, path: str) -> bool:
        """Whether the blob at `path` (relative to the prefix) is data of this pipeline.

        If the pipeline has partitions, a blob outside them is not data.
        """
        if self.partitions is not None and self.partition_of(path) is None:
            return False
        if self.is_marker(path):
            return False
        return any(fnmatchcase(path, pattern) for pattern in self.include)

    @property
    def last_blob(self) -> str | None:
        """The name of the blob that completes a batch: the marker, or the uploader's manifest."""
        return self.marker if self.manifest is None else self.manifest

    def is_marker(self, path: str) -> bool:
        """Whether `path` (relative to the prefix) is the marker, or the manifest, of a batch."""
        if self.last_blob is None:
            return False
        partition = self.partition_of(path) if self.batch == "partition" else None
        return path == self.marker_path(partition)

    def marker_path(self, partition: Partition | None) -> str | None:
        """The path of a batch's marker or manifest, relative to the prefix; None without one.

        Args:
            partition: the batch's partition, if each partition is a batch.
        """
        if self.last_blob is None or (self.batch == "partition" and partition is None):
            return None
        return ("" if partition is None else partition.prefix) + self.last_blob


@lru_cache
def _pattern(text: str) -> PartitionPattern:
    return PartitionPattern(text)


class Settle(Section):
    """When a batch is complete."""

    quiet_seconds: float = Field(gt=0, le=86_400)
    """A batch is complete after this time without a write. Not used with a marker."""
    maximum_wait_seconds: float = Field(gt=0, le=7 * 86_400)
    """After this time the batch is taken as it is; with a marker, `without_marker` applies. Not
    shorter than `quiet_seconds`."""
    without_marker: Literal["alert", "train"] = "alert"
    """The action when the maximum wait is over and `source.marker` is missing."""
    # Left out where they are not set, so that the histories of other pipelines do not change.
    minimum_change: MinimumChange | None = Field(default=None, exclude_if=lambda it: it is None)
    """How much a batch must differ from the last trained one. A batch that differs less waits, and
    is part of the next one. A request with a reason is not subject to it."""
    maximum_age_seconds: float | None = Field(
        default=None, gt=0, le=365 * 86_400, exclude_if=lambda it: it is None
    )
    """A batch that has waited for so long for `minimum_change` is trained on all the same. Without
    it, it waits until enough has changed."""

    @model_validator(mode="after")
    def _check_order(self) -> Settle:
        if self.maximum_wait_seconds < self.quiet_seconds:
            raise ValueError("maximum_wait_seconds is shorter than quiet_seconds")
        if self.maximum_age_seconds is not None and self.minimum_change is None:
            raise ValueError("maximum_age_seconds needs minimum_change")
        return self


class DatasetSection(Section):
    """How a frozen manifest is registered in Azure ML."""

    name: Name
    """The name of the data asset."""
    datastore: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,255}$")]
    """The workspace's datastore for the source's container."""
    freeze: Literal["reference", "copy"] = "reference"
    """Whether jobs read the zone itself, or copies that are never overwritten."""
    maximum_shrink: float = Field(default=0.1, ge=0, le=1)
    """A batch that has lost a larger part of its blobs since the last trained batch is held for a
    person; 1 never holds a batch."""
    newest_partitions: int | None = Field(default=None, ge=1)
    """Take only this many partitions, the newest ones. Needs `source.partitions`; not with
    `last_days` or `source.manifest`."""
    last_days: int | None = Field(default=None, ge=1)
    """Take only the partitions of the last days, this many. Needs `source.partitions`; not with
    `newest_partitions` or `source.manifest`."""


class Significance(Section):
    """Promote only a lead over the champion that is unlikely to be luck. Needs `comparison.json`.

    The test is one-sided: McNemar's exact test if samples are right or wrong, a paired t-test if
    each has a score.
    """

    alpha: float = Field(default=0.05, gt=0, le=0.5)
    """The greatest p: the chance of such a lead if the new model is no better."""


class SliceRule(Section):
    """How much the slices of `comparison.json` may fall: labels, folders, or any others."""

    match: str = Field(min_length=1, max_length=100)
    """Shell pattern of the slices' names, such as `label:*`. The first rule that matches counts.
    Each rule must match a slice."""
    fall_at_most: float = Field(ge=0)
    """A model that is worse than the champion on such a slice by more is not promoted."""
    samples_at_least: int = Field(default=30, ge=1)
    """A slice with fewer samples is named, and does not keep a model back."""


class Gate(Section):
    """When a new model may replace the champion."""

    metric: MetricName
    """The key of the job's `metrics.json` by which models are judged."""
    goal: Literal["maximize", "minimize"] = "maximize"
    """Whether a greater or a smaller metric is better."""
    floor: float
    """A worse model is never registered (an upper limit if the goal is to minimize)."""
    champion_margin: float = 0.0
    """The required lead over the champion on the same data; if negative, the tolerated loss."""
    compare_with_last: int = Field(default=10, ge=1, le=100)
    """With a negative margin, a model must also be within it of the best of this many last
    champions, so that small losses do not add up."""
    # Left out where they are not set, so that the histories of other pipelines do not change.
    significance: Significance | None = Field(default=None, exclude_if=lambda it: it is None)
    """Promote only a lead that is unlikely to be luck. Needs `champion_margin` of at least 0."""
    slices: list[SliceRule] = Field(
        default=list[SliceRule](), max_length=20, exclude_if=lambda it: not it
    )
    """Slices on which a model may not be much worse than the champion."""

    @model_validator(mode="after")
    def _has_a_lead(self) -> Gate:
        if self.significance is not None and self.champion_margin < 0:
            raise ValueError(
                "significance needs champion_margin of at least 0: a tolerated loss is no lead"
            )
        return self


class ModelSection(Section):
    """How a model is registered."""

    name: Name
    """The name under which models are registered."""
    warm_start: bool = False
    """Also give the job the champion, as its input `initial_model`."""
    register_challengers: bool = False
    """Also register models above the floor that do not beat the champion, as challengers."""


class Retry(Section):
    """Retries of a run that failed for a transient reason."""

    attempts: int = Field(default=3, ge=1, le=20)
    """The number of attempts at a dataset version, the first one included."""
    delays_seconds: list[Annotated[float, Field(ge=0, le=7 * 86_400)]] = Field(
        default=[60.0, 600.0, 3600.0], min_length=1
    )
    """Delays before attempts 2, 3, …; the last value repeats."""


class Limits(Section):
    """How long a state may last before the run is ended and retried."""

    waiting_seconds: float | None = Field(default=None, gt=0, exclude_if=lambda it: it is None)
    """The wait for nodes of the run's queue. Without it there is no limit."""
    queued_seconds: float = Field(default=6 * 3600, gt=0)
    """The job's wait for nodes in Azure ML."""
    running_seconds: float = Field(default=7 * 86_400, gt=0, le=21 * 86_400)
    """The time that the job runs."""


class Alarms(Section):
    """Limits that raise an alarm. A key that is not set raises none."""

    no_data_for_hours: float | None = Field(default=None, gt=0)
    """The longest time without landed data."""
    no_success_for_hours: float | None = Field(default=None, gt=0)
    """The longest time without a run that registers a model."""
    model_older_than_days: float | None = Field(default=None, gt=0)
    """The greatest age of the model in service, since its registration."""
    run_waits_minutes: float | None = Field(default=None, gt=0)
    """The longest wait of a run in one state before its job starts."""


class Webhook(Section):
    """A receiver of webhooks: signed documents, or cards. Its URL and secret are app settings."""

    name: Name
    """Its name, which a request can give as `receiver`."""
    url_setting: str
    """The app setting with its URL."""
    # Left out where they are not set, so that the histories of other pipelines do not change.
    secret_setting: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The app setting with the secret that signs; for cards, the URL is the secret."""
    format: Literal["teams", "slack"] | None = Field(default=None, exclude_if=lambda it: it is None)
    """A card for people: of Microsoft Teams (Workflows) or Slack. Without it, a signed document."""
    on_request: bool = Field(default=False, exclude_if=lambda it: not it)
    """Only for the runs whose request names it as `receiver`."""

    @model_validator(mode="after")
    def _signs_documents(self) -> Webhook:
        if self.format is None and self.secret_setting is None:
            raise ValueError("secret_setting is missing: documents are signed; cards have a format")
        if self.format is not None and self.secret_setting is not None:
            raise ValueError(f"secret_setting is not used by format {self.format}: remove it")
        return self


class Notifications(Section):
    """The channels of notifications. Each one is delivered independently, at least once."""

    event_grid: bool = True
    """Whether to publish to the Event Grid topic."""
    service_bus: bool = True
    """Whether to send to the Service Bus topic `ops-alerts`."""
    webhooks: list[Webhook] = Field(default=[])


SECTIONS: Mapping[Stage, tuple[str, ...]] = {
    "data-check": ("checks",),
    "champion-check": ("champion_check",),
    "training": (),
}
"""Where `pipeline.yml` has the keys `job` and `compute` of a stage."""


class Pipeline(Section):
    """One pipeline."""

    name: Name
    source: Source
    settle: Settle
    dataset: DatasetSection
    # Left out where it is not set, so that the histories of other pipelines do not change.
    checks: Checks | None = Field(default=None, exclude_if=lambda it: it is None)
    """Rules for a batch's data, checked before the compute options of training are asked for."""
    champion_check: ChampionCheck | None = Field(default=None, exclude_if=lambda it: it is None)
    """Train only if the model in service does worse on the new files, or they are many."""
    compute: list[ComputeOption] = Field(min_length=1)
    queue: Name | None = Field(default=None, exclude_if=lambda it: it is None)
    """The queue in `queues.yml` where its runs wait for nodes. Without it they do not wait."""
    gate: Gate
    approve: Approvals
    """Questions to people before a model goes on; one of them can stand without a list."""
    model: ModelSection
    retry: Retry = Retry()
    limits: Limits = Limits()
    notify: Notifications = Notifications()
    # Left out where it is not set, so that the histories of other pipelines do not change.
    alarms: Alarms = Field(default=Alarms(), exclude_if=lambda value: value == Alarms())
    job: str = "job.yml"
    """Azure ML CLI v2 command, sweep or pipeline job, relative to the pipeline's folder."""
    parameters: dict[ParameterName, Parameter] = Field(
        default={}, max_length=PARAMETERS_LIMIT, exclude_if=lambda it: not it
    )
    """Values that a request for a run can set, by name."""
    # Left out where it is not set, so that the histories of other pipelines do not change.
    deploy: Deploy | None = Field(default=None, exclude_if=lambda value: value is None)
    """Without it, models are registered, but not deployed."""

    _of_earlier_releases = ignore_fields("minimum_scaling_efficiency")

    @property
    def has_rules_for_data(self) -> bool:
        """Whether a batch's content decides whether it is trained on."""
        return (
            self.checks is not None
            or self.settle.minimum_change is not None
            or self.champion_check is not None
        )

    @property
    def jobs(self) -> Mapping[Stage, tuple[str, list[ComputeOption]]]:
        """The stages of a run, in order: their job files and compute options."""
        jobs: dict[Stage, tuple[str, list[ComputeOption]]] = {}
        if self.checks is not None and self.checks.job is not None:
            jobs["data-check"] = self.checks.job, self.checks.compute
        if self.champion_check is not None:
            jobs["champion-check"] = self.champion_check.job, self.champion_check.compute
        return {**jobs, "training": (self.job, self.compute)}

    @property
    def selects_partitions(self) -> bool:
        """Whether a dataset may be less than the whole zone."""
        return (
            self.source.batch == "partition"
            or self.dataset.newest_partitions is not None
            or self.dataset.last_days is not None
        )

    def has_zone(self, partition: str | None) -> bool:
        """Whether batches are partitions, if `partition` names one, or else the whole zone."""
        return (partition is not None) == (self.source.batch == "partition")

    def watches(self, container: str, blob: str) -> bool:
        """Whether a blob is in this pipeline's landing zone."""
        return container == self.source.container and blob.startswith(self.source.prefix)
