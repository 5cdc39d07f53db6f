"""Frozen datasets: the activities that list, freeze, copy, claim and register them."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure


class Configuration(Contract):
    """The configuration in force when it was resolved."""

    hash: str
    """The hash of both files' text and of the code that the job names. The records container keeps
    the text under this hash."""
    pipeline: Pipeline


class Dataset(Contract):
    """A frozen manifest."""

    version: str
    blobs: int
    bytes: int
    partition: str | None = None
    """Key of the partition that is the batch, where each is one."""
    quarantined: int = 0
    """How many blobs were left out since a trainer refused them."""
    frozen_at: datetime
    """A time before the listing began: the listing saw every earlier write."""
    newest: datetime | None = None
    """When the newest blob was written, by the storage service's clock; None if it is empty."""
    manifest_path: str
    """Folder in the records container that holds `manifest.jsonl` and `MLTable`."""
    copies: str | None = None
    """Folder in the records container that holds the copies that the manifest names; None where
    jobs read the zone itself."""


class FreezeStart(Contract):
    """The first step: a small zone is frozen; a large one is partly listed and cut into ranges."""

    configuration: Configuration
    """The one that the listing used, and that the rest of the batch uses."""
    dataset: Dataset | None = None
    is_overtaken: bool = False
    """Whether the uploader's manifest was written to while it was read: there is no dataset."""
    ranges: int = 0
    """How many ranges of names still have to be listed."""
    part: str | None = None
    """The part of the manifest that is listed already."""
    quarantined: int = 0
    """How many of its blobs were left out because a trainer refused them."""


class FreezeManifest(ActivityRequest[FreezeStart]):
    """Input of `freeze_manifest`, which resolves the pipeline's configuration."""

    pipeline: str
    partition: str | None = None
    """Key of the partition that is the batch, where each is one."""
    freeze: str
    """The name of this freeze, for its parts until the manifest is written."""
    frozen_at: datetime


class Piece(Contract):
    """A finished piece of work."""

    marker: str | None
    """Where the next piece begins; None when this was the last one."""


class ListedRange(Piece):
    """A listed piece of a range."""

    part: str | None
    """The manifest part of this piece; None if it held no data."""
    quarantined: int = 0
    """How many of its blobs were left out because a trainer refused them."""


class ListRange(ActivityRequest[ListedRange]):
    """Input of `list_range`: the next piece of one range of names."""

    pipeline: str
    configuration: str
    """Hash of the freeze's configuration."""
    freeze: str
    range: int
    """The number of the range, from 0."""
    marker: str | None = None
    """Where the last piece ended."""


class CommitProgress(Contract):
    """How much of a manifest is hashed, or, after hashing, how much of it is written."""

    blobs: int
    bytes: int
    link: str
    """See `orchestrations.contracts.manifest.DatasetVersion`."""
    is_hashed: bool
    after: str | None
    """The last path of the previous piece; None at the beginning."""
    blocks: int = 0
    """How many blocks of the manifest are staged."""


class CommitStep(Contract):
    """A piece of the commit: the dataset after the last piece, otherwise the progress."""

    dataset: Dataset | None = None
    progress: CommitProgress | None = None


class CommitManifest(ActivityRequest[CommitStep]):
    """Input of `commit_manifest`: the parts of the manifest, and the progress."""

    pipeline: str
    configuration: str
    partition: str | None = None
    freeze: str
    frozen_at: datetime
    parts: list[str] = Field(default_factory=list[str])
    quarantined: int = 0
    progress: CommitProgress | None = None


class CopyBlobs(ActivityRequest[Piece]):
    """Input of `copy_blobs`: the next piece of one part of a manifest."""

    # The service may copy large blobs in the background: wait for up to ten minutes.
    PAUSES_SECONDS: ClassVar[tuple[float, ...]] = (10.0,) * 59

    pipeline: str
    configuration: str
    partition: str | None = None
    freeze: str
    part: str
    marker: str | None = None
    """Where the last piece ended."""


class Lanes(Contract):
    """Progress of work in parallel lanes; the pieces of each lane are done in order."""

    count: int
    begun: int = 0
    """How many lanes have begun."""
    markers: dict[int, str] = Field(default_factory=dict[int, str])
    """Lane → where its next piece begins; only lanes that have begun and not ended."""

    @property
    def is_over(self) -> bool:
        """Whether every lane has ended."""
        return self.begun == self.count and not self.markers


class Freezing(Contract):
    """Input of the orchestration `freezing`, also when it continues as new."""

    commit: CommitManifest
    """The parts that were listed so far."""
    is_copied: bool
    """Whether the blobs of the parts are copied: `dataset.freeze: copy`."""
    ranges: Lanes
    copying: Lanes | None = None
    """One lane per part; None until all ranges are listed."""


class Frozen(Contract):
    """Output of the orchestration `freezing`."""

    dataset: Dataset | None = None
    """None when the zone was written to while it was being frozen."""
    failure: Failure | None = None
    """Why no dataset could be frozen."""


class DiscardParts(ActivityRequest[Done]):
    """Input of `discard_parts`."""

    pipeline: str
    freeze: str


class Superseded(Contract):
    """The newer run, if there is one."""

    by: str | None


class CheckSuperseded(ActivityRequest[Superseded]):
    """Input of `check_superseded`: was a newer dataset claimed after this one?"""

    pipeline: str
    dataset: Dataset


class DataAsset(Contract):
    """A registered data asset."""

    name: str
    version: str


class RegisterDataset(ActivityRequest[DataAsset]):
    """Input of `register_dataset`."""

    pipeline: Pipeline
    dataset: Dataset


class QuarantineFiles(ActivityRequest[Done]):
    """Input of `quarantine_files`: exclude the files in the run's error.json from later freezes."""

    pipeline: str
    run: str
    dataset: Dataset
