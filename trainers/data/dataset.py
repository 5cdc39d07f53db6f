"""What a run asks for, and a dataset version that is ready to learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainers.data.image_file import ImageFormat
from trainers.data.images import SampleSource
from trainers.data.order import SHUFFLE_WINDOW
from trainers.errors import FileProblem
from trainers.tasks.classification import Classification
from trainers.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class DatasetRequest:
    """The options of a dataset. Each kind of dataset uses some of them."""

    image_format: ImageFormat
    data: Path | None = None
    manifest: Path | None = None
    dataset_version: str | None = None
    max_bad_fraction: float = 0.0
    synthetic_images: int = 0
    synthetic_classes: int = 0
    shuffle_window: int = SHUFFLE_WINDOW
    batch_size: int = 1
    rank: int = 0
    ranks: int = 1
    cache_dir: Path | None = None
    cache_bytes: int = 0
    download: bool = False
    annotations: str = ""
    decode_threads: int = 1


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset version, ready to learn from."""

    version: str
    classes: tuple[str, ...]
    train: SampleSource
    held_out: SampleSource
    held_out_as: Callable[[ImageFormat], SampleSource]
    """The held-out images for a model that takes another format, as a champion may."""
    fingerprint: str
    """Changes whenever a sample does, or their order: no checkpoint of other data is resumed."""
    quarantined: tuple[FileProblem, ...] = ()
    task: Task = field(default_factory=Classification)
