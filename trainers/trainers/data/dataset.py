"""The options that name a dataset, and a loaded dataset version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from trainers.arguments import OWN, Fraction, PositiveInteger, name_among, option
from trainers.data.image_file import ImageFormat
from trainers.data.images import SampleSource
from trainers.data.order import SHUFFLE_WINDOW
from trainers.errors import FileProblem

# Imported on use: shards need packages that the other kinds do not.
DATASETS = {
    "folder": "trainers.data.folder:load_folder",
    "shards": "trainers.data.shards:load_shards",
    "synthetic": "trainers.data.synthetic:make",
    "coco": "trainers.tasks.coco_dataset:load",
}


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The options that name a dataset. Training and evaluation share them."""

    dataset: Annotated[str, name_among(*DATASETS)] = option(
        "folder", f"{', '.join(DATASETS)}, or {OWN}"
    )
    data: Path | None = option(None, "folder of <label>/<name>.png, or of shards")
    manifest: Path | None = option(None, "manifest.jsonl, or its folder")
    annotations: str = option("annotations.json", "of --dataset coco: a file of the data")
    synthetic_images: PositiveInteger = option(12_800)
    synthetic_classes: PositiveInteger = option(1000)
    decode_threads: PositiveInteger = option(1, "of each rank, for shards")
    dataset_version: str | None = option(None, "default: computed from the manifest")
    max_bad_fraction: Fraction = option(0.01, "of files that may be bad")

    def request(self, image_format: ImageFormat, **further: Any) -> DatasetRequest:
        """Return the request for these options; `further` are its other fields."""
        mine = {field.name: getattr(self, field.name) for field in fields(DataOptions)}
        return DatasetRequest(**mine, image_format=image_format, **further)


@dataclass(frozen=True, kw_only=True)
class DatasetRequest(DataOptions):
    """The arguments of a dataset's loader: the options, and values of the run. No kind uses all."""

    image_format: ImageFormat
    shuffle_window: int = SHUFFLE_WINDOW
    batch_size: int = 1
    ranks: int = 1


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A loaded dataset version: samples to train on, held-out samples, and the task."""

    version: str
    classes: tuple[str, ...]
    train: SampleSource
    held_out: SampleSource
    held_out_as: Callable[[ImageFormat], SampleSource]
    """Returns the held-out images in the format of another model, such as the champion."""
    fingerprint: str
    """A hash of the samples and their order. Checkpoints with another one are not resumed from."""
    quarantined: tuple[FileProblem, ...] = ()
    task: Any = None
    """A `trainers.tasks.task.Task`, untyped since tasks import the data; None: classification."""

    def summary(self) -> str:
        """Return one line for the log."""
        return (
            f"{self.version}: {len(self.train)} images to train on, {len(self.held_out)} held out, "
            f"{len(self.classes)} classes, {len(self.quarantined)} quarantined"
        )
