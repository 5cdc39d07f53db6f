"""Frozen datasets: what a zone holds, what is frozen of it, and whose it is."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Field

from orchestrations.contracts.base import ActivityRequest, Contract, Done, Failure
from orchestrations.pipeline import Pipeline


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
    """Before the listing began: it saw every write until then."""
    newest: datetime | None = None
    """When the newest blob was written, by the storage service's clock; None when it is empty."""
    manifest_path: str
    """Folder in the records container that holds `manifest.jsonl` and `MLTable`."""
    copies: str | None = None
    """Folder in the records container that holds the copies that the manifest names; None where
    jobs read the zone itself."""


class FreezeStart(Contract):
    """A small zone is frozen at once; of a large one the beginning is listed, and the rest cut."""

    dataset: Dataset | None = None
    ranges: int = 0
    """How many ranges of names are left to list."""
    part: str | None = None
    """The part of the manifest that is listed already."""
    quarantined: int = 0
    """How many blobs of it were left out since a trainer refused them."""


class FreezeManifest(ActivityRequest[FreezeStart]):
    """Input of `freeze_manifest`."""

    pipeline: Pipeline
    partition: str | None = None
    """Key of the partition that is the batch, where each is one."""
    freeze: str
    """Names what belongs to this freeze until its manifest is written."""
    frozen_at: datetime


class Piece(Contract):
    """A piece of work that is done."""

    marker: str | None
    """Where the next piece begins; None when this was the last one."""


class ListedRange(Piece):
    """A piece of a range, listed."""

    part: str | None
    """The part of the manifest that it gave; None when it held no data."""
    quarantined: int = 0
    """How many blobs of it were left out since a trainer refused them."""


class ListRange(ActivityRequest[ListedRange]):
    """Input of `list_range`: the next piece of one range of names."""

    pipeline: Pipeline
    freeze: str
    range: int
    """Its number, from 0."""
    marker: str | None = None
    """Where the last piece ended."""


class CommitProgress(Contract):
    """How much of a manifest is hashed and, when all of it is, how much of it is written."""

    blobs: int
    bytes: int
    link: str
    """See `orchestrations.manifest.DatasetVersion`."""
    is_hashed: bool
    after: str | None
    """The path that the next piece comes after; None at the beginning."""
    blocks: int = 0
    """How many blocks of the manifest are staged."""


class CommitStep(Contract):
    """A piece of the commit: the dataset when it was the last one, else how far it is."""

    dataset: Dataset | None = None
    progress: CommitProgress | None = None


class CommitManifest(ActivityRequest[CommitStep]):
    """Input of `commit_manifest`: the parts that make the manifest, and how far it is made."""

    pipeline: Pipeline
    partition: str | None = None
    freeze: str
    frozen_at: datetime
    parts: list[str] = Field(default_factory=list[str])
    quarantined: int = 0
    progress: CommitProgress | None = None


class CopyBlobs(ActivityRequest[Piece]):
    """Input of `copy_blobs`: the next piece of one part of a manifest."""

    # The service may copy large blobs in the background: ten minutes of waiting.
    ATTEMPTS: ClassVar[int] = 60
    RETRY_SECONDS: ClassVar[float] = 10.0

    pipeline: Pipeline
    partition: str | None = None
    freeze: str
    part: str
    marker: str | None = None
    """Where the last piece ended."""


class Lanes(Contract):
    """Work that is done piece by piece, several lanes side by side, each in its own order."""

    count: int
    begun: int = 0
    """How many of the lanes are begun."""
    markers: dict[int, str] = Field(default_factory=dict[int, str])
    """Where each lane goes on that is begun and has not ended."""

    @property
    def is_over(self) -> bool:
        """Whether every lane has ended."""
        return self.begun == self.count and not self.markers


class Freezing(Contract):
    """Input of the orchestration `freezing`, also where it starts itself again on a long way."""

    commit: CommitManifest
    """The parts that are listed by now."""
    ranges: Lanes
    copying: Lanes | None = None
    """A lane a part; None until all is listed."""


class Frozen(Contract):
    """Output of the orchestration `freezing`."""

    dataset: Dataset | None = None
    """None when the zone was written to while it was being frozen."""
    failure: Failure | None = None
    """Why there can be none."""


class DiscardParts(ActivityRequest[Done]):
    """Input of `discard_parts`."""

    pipeline: str
    freeze: str


class Superseded(Contract):
    """The newer run, if there is one."""

    by: str | None


class CheckSuperseded(ActivityRequest[Superseded]):
    """Input of `check_superseded`: has a newer dataset been claimed since?"""

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
    """Input of `quarantine_files`: leave the files of this run's error.json out from now on."""

    pipeline: str
    run: str
    dataset: Dataset
