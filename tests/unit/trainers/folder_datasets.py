"""Datasets of folders. Apart from `small_datasets`, whose users do without torch."""

from __future__ import annotations

from pathlib import Path

from tests.unit.trainers.small_datasets import write_manifest
from trainers.data.dataset import Dataset, DatasetRequest
from trainers.data.folder import load_folder
from trainers.data.image_file import ImageFormat
from trainers.data.manifest import Manifest


def load(
    manifest: Manifest, folder: Path, image_format: ImageFormat, *, max_bad_fraction: float = 0
) -> Dataset:
    """The dataset of a folder's files; its manifest is written next to the folder."""
    return load_folder(
        DatasetRequest(
            image_format=image_format,
            data=folder,
            manifest=write_manifest(folder.with_suffix(".jsonl"), manifest),
            dataset_version=manifest.version,
            max_bad_fraction=max_bad_fraction,
        )
    )
