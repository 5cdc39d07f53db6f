"""Images and labels as tensors, by number, to train on and held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from trainers.data.image_file import ImageFormat
from trainers.data.order import SHUFFLE_WINDOW
from trainers.errors import FileProblem


@dataclass(frozen=True, kw_only=True)
class Images:
    """Images and their labels as numbers: bytes of shape (N, C, H, W) and int64 of shape (N,)."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> Images:
        """Some of them, in the order of `numbers`."""
        return Images(pixels=self.pixels[numbers], labels=self.labels[numbers])


class ImageSource(Protocol):
    """Images by number, from 0: in memory, as `Images` are, or generated or read on demand."""

    def __len__(self) -> int: ...

    def take(self, numbers: Tensor) -> Images:
        """The images of these numbers, in that order. A number always has the same image."""
        ...


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
    train: ImageSource
    held_out: ImageSource
    held_out_as: Callable[[ImageFormat], ImageSource]
    """The held-out images for a model that takes another format, as a champion may."""
    fingerprint: str
    """Changes whenever a sample does, or their order: no checkpoint of other data is resumed."""
    quarantined: tuple[FileProblem, ...] = ()


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Bytes to a network's input: numbers from -1 to 1, of the same shape."""
    # Copies bytes, not numbers of four bytes: `to` with both arguments would convert on the CPU.
    return pixels.to(device).to(torch.get_default_dtype()) / 127.5 - 1
