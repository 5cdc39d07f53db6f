"""Frozen datasets: what a zone holds, what is frozen of it, and whose it is."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from orchestrations.contracts.base import ActivityRequest, Contract, Done
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
    fingerprint: str
    manifest_path: str
    """Folder in the records container that holds `manifest.jsonl` and `MLTable`."""


class FreezeManifest(ActivityRequest[Dataset]):
    """Input of `freeze_manifest`."""

    LIMIT_SECONDS: ClassVar[float] = 570.0
    """One activity lists the whole zone; this is less than `functionTimeout`."""

    pipeline: Pipeline
    partition: str | None = None
    """Key of the partition that is the batch, where each is one."""
    frozen_at: datetime


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
