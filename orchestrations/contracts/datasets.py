"""Frozen datasets: what a zone holds, what is frozen of it, and whose it is."""

from __future__ import annotations

from datetime import datetime

from orchestrations.contracts.base import ActivityRequest, Contract, Done
from orchestrations.pipeline import Pipeline


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


class SurveyZone(ActivityRequest[Survey]):
    """Input of `survey_zone`."""

    pipeline: Pipeline


class FreezeManifest(ActivityRequest[Dataset]):
    """Input of `freeze_manifest`."""

    pipeline: Pipeline
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
