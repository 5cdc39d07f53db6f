"""The schema of `pipelines/<name>/pipeline.yml`: which data starts which training.

Pure: `handlers.configuration.pipeline_files` reads the files and turns a violation into an
`InvalidPipeline` that names file, line, key and value.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from orchestrations.deploy import Deploy
from orchestrations.partitions import Partition, PartitionPattern
from orchestrations.section import ClusterName, Prefix, Section

# Job names: at most 255 of [a-zA-Z0-9_-]; a run id adds 20 characters to the pipeline's name, and
# instance ids, tags and message ids are derived from it in turn.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
# https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
Container = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")]
# A webhook's retries end after 75 h: long enough for a long week-end's outage.
DELIVERY_DELAYS_SECONDS = (5.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 86400.0, 118800.0)


class Source(Section):
    """Where data lands."""

    container: Container
    prefix: Prefix = ""
    """Ends in `/` unless it is empty (the whole container)."""
    include: list[str] = Field(default=["*"])
    """Shell patterns on the path below the prefix; a blob that matches none is filtered."""
    marker: str | None = None
    """Name of the blob that marks a batch as whole, such as `_SUCCESS`. It lies below the prefix,
    or, where each partition is a batch, directly in each partition."""
    manifest: str | None = None
    """Name of a blob that lists the files of a batch, written by the uploader after all of them.
    It is in the place of a listing, and of a marker; it lies where a marker would."""
    partitions: str | None = None
    """Folders below the prefix that are named for a time, such as `date=%Y-%m-%d`."""
    batch: Literal["zone", "partition"] = "zone"
    """The unit that settles as one: the whole zone, or each partition by itself."""
    deletions: Literal["ignore", "retrain"] = "ignore"
    """Whether a batch that only lost blobs since the last one is trained on."""

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
        """The partition of that key.

        Raises:
            ValueError: the pipeline has no such partitions.
        """
        if self.partitions is None:
            raise ValueError(f"{key!r}: source.partitions is not set")
        return _pattern(self.partitions).partition(key)

    def partition_levels(self) -> int:
        """How many folders deep the partitions lie; 0 where there are none."""
        return 0 if self.partitions is None else _pattern(self.partitions).levels

    def takes(self, path: str) -> bool:
        """Whether the blob at `path` (relative to the prefix) is data of this pipeline.

        Outside all partitions nothing is, where the pipeline names some.
        """
        if self.partitions is not None and self.partition_of(path) is None:
            return False
        if self.is_marker(path):
            return False
        return any(fnmatchcase(path, pattern) for pattern in self.include)

    @property
    def last_blob(self) -> str | None:
        """The blob whose arrival says that a batch is whole: its marker, or its manifest."""
        return self.marker if self.manifest is None else self.manifest

    def is_marker(self, path: str) -> bool:
        """Whether `path` (relative to the prefix) is the marker, or the manifest, of a batch."""
        if self.last_blob is None:
            return False
        partition = self.partition_of(path) if self.batch == "partition" else None
        return path == self.marker_path(partition)

    def marker_path(self, partition: Partition | None) -> str | None:
        """Where the marker, or the manifest, of a batch lies, relative to the prefix.

        None where there are none.

        Args:
            partition: the batch's own, where each partition is a batch.
        """
        if self.last_blob is None or (self.batch == "partition" and partition is None):
            return None
        return ("" if partition is None else partition.prefix) + self.last_blob


@lru_cache
def _pattern(text: str) -> PartitionPattern:
    return PartitionPattern(text)


class Settle(Section):
    """When a batch is whole."""

    quiet_seconds: float = Field(gt=0, le=86_400)
    """How long nothing must have been written. Not asked for where a marker rules."""
    maximum_wait_seconds: float = Field(gt=0, le=7 * 86_400)
    """After this the batch is taken as it is; or, where a marker rules, operators are alerted."""
    without_marker: Literal["alert", "train"] = "alert"
    """The follow-up when the maximum wait is over and the marker has not come."""

    @model_validator(mode="after")
    def _in_order(self) -> Settle:
        if self.maximum_wait_seconds < self.quiet_seconds:
            raise ValueError("maximum_wait_seconds is shorter than quiet_seconds")
        return self


class DatasetSection(Section):
    """How a frozen manifest is registered in Azure ML."""

    name: Name
    datastore: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,255}$")]
    """The workspace's datastore on the source's container."""
    freeze: Literal["reference", "copy"] = "reference"
    """Whether jobs read the zone itself, or copies of its blobs that nothing overwrites."""
    maximum_shrink: float = Field(default=0.1, ge=0, le=1)
    """A batch that has lost a larger part of its blobs since the last one that was trained on is
    held for a person; 1 holds none."""
    newest_partitions: int | None = Field(default=None, ge=1)
    """Only the blobs of so many partitions, the newest."""
    last_days: int | None = Field(default=None, ge=1)
    """Only the blobs of the partitions of so many days, the last ones."""


class ComputeOption(Section):
    """One way to get nodes. The next one is taken on the next attempt, or when quota is short."""

    cluster: ClusterName
    size: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,64}$")]
    priority: Literal["dedicated", "low_priority"] = "dedicated"
    nodes: int = Field(ge=1, le=1000)
    """The job's `instance_count`; the cluster's `max_instances` must allow it."""
    idle_seconds_before_scale_down: int = Field(default=120, ge=1)


class Gate(Section):
    """When a new model may replace the champion."""

    metric: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,99}$")]
    goal: Literal["maximize", "minimize"] = "maximize"
    floor: float
    """Worse than this is never registered (a ceiling when the goal is to minimize)."""
    champion_margin: float = 0.0
    """How much better than the champion's score on the same data; negative tolerates a loss."""
    compare_with_last: int = Field(default=10, ge=1, le=100)
    """With a negative margin, a model must also come within it of the best of so many champions:
    small losses do not add up."""


class ModelSection(Section):
    """How a model is registered."""

    name: Name
    warm_start: bool = False
    """Give the job the champion as its input `initial_model`, too."""
    register_challengers: bool = False
    """Register models above the floor that do not beat the champion, too, as challengers."""


class Retry(Section):
    """Retries of a run that failed for a transient reason."""

    attempts: int = Field(default=3, ge=1, le=20)
    delays_seconds: list[Annotated[float, Field(ge=0, le=7 * 86_400)]] = Field(
        default=[60.0, 600.0, 3600.0], min_length=1
    )
    """Before attempt 2, 3, …; the last one repeats."""


class Limits(Section):
    """How long a state may last before the run is ended and retried."""

    waiting_seconds: float | None = Field(default=None, gt=0, exclude_if=lambda it: it is None)
    """For nodes of its queue. None: as long as it takes."""
    queued_seconds: float = Field(default=6 * 3600, gt=0)
    running_seconds: float = Field(default=7 * 86_400, gt=0, le=21 * 86_400)


class Alarms(Section):
    """When silence is an alarm; what is not set is none."""

    no_data_for_hours: float | None = Field(default=None, gt=0)
    """No data has landed for longer."""
    no_success_for_hours: float | None = Field(default=None, gt=0)
    """No run has registered a model for longer."""
    model_older_than_days: float | None = Field(default=None, gt=0)
    """The model in service was registered longer ago."""
    run_waits_minutes: float | None = Field(default=None, gt=0)
    """A run has waited longer for its job to start, in one state."""


class Webhook(Section):
    """A receiver of signed webhooks. Its URL and secret stand in app settings, not here."""

    name: Name
    url_setting: str
    secret_setting: str


class Notifications(Section):
    """The channels of notifications. Each is delivered on its own, at least once."""

    event_grid: bool = True
    service_bus: bool = True
    webhooks: list[Webhook] = Field(default=[])


class Pipeline(Section):
    """One pipeline."""

    name: Name
    source: Source
    settle: Settle
    dataset: DatasetSection
    compute: list[ComputeOption] = Field(min_length=1)
    # Left out where it is not set, so that the histories of other pipelines do not change.
    minimum_scaling_efficiency: float | None = Field(
        default=None, gt=0, le=1, exclude_if=lambda it: it is None
    )
    """An option whose devices each train more slowly than this part of what a device of an option
    with fewer nodes was measured to do is tried after it. None: the order above holds."""
    queue: Name | None = Field(default=None, exclude_if=lambda it: it is None)
    """The queue of `queues.yml` that its runs wait in for nodes. None: they do not wait."""
    gate: Gate
    model: ModelSection
    retry: Retry = Retry()
    limits: Limits = Limits()
    notify: Notifications = Notifications()
    # Left out where it is not set, so that the histories of other pipelines do not change.
    alarms: Alarms = Field(default=Alarms(), exclude_if=lambda value: value == Alarms())
    job: str = "job.yml"
    """Azure ML CLI v2 command, sweep or pipeline job, relative to the pipeline's folder."""
    # Left out where it is not set, so that the histories of other pipelines do not change.
    deploy: Deploy | None = Field(default=None, exclude_if=lambda value: value is None)
    """None: models are registered, and no endpoint is touched."""

    @property
    def selects_partitions(self) -> bool:
        """Whether a dataset may hold less than the whole zone."""
        return (
            self.source.batch == "partition"
            or self.dataset.newest_partitions is not None
            or self.dataset.last_days is not None
        )

    def watches(self, container: str, blob: str) -> bool:
        """Whether a blob lies in this pipeline's landing zone."""
        return container == self.source.container and blob.startswith(self.source.prefix)
