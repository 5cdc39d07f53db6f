"""Samples as tensors, addressed by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from trainers.data.image_file import ImageFormat

_INPUT_BYTES = 64 * 2**20
_BYTES_OF_A_VALUE = 4


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Inputs and labels; a sample's number is its index in both.

    For images: bytes of shape (N, C, H, W), and class numbers, int64 of shape (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> Samples:
        """Return the samples of these numbers, in that order."""
        return Samples(inputs=self.inputs[numbers], labels=self.labels[numbers])


class SampleSource(Protocol):
    """Samples with numbers from 0: in memory, like `Samples`, or generated or read on demand."""

    def __len__(self) -> int: ...

    def take(self, numbers: Tensor) -> Samples:
        """The samples of these numbers, in that order. A number always has the same sample."""
        ...


def images_at_once(image_format: ImageFormat, *, at_most: int) -> int:
    """Return how many images to pass through a network without gradients at a time.

    Its memory is some tens of times that of its input, so the input is at most 64 MiB: 111 images
    in RGB of 224 pixels, 5 of 1,024.
    """
    values = image_format.channels * image_format.size**2
    return max(1, min(at_most, _INPUT_BYTES // (_BYTES_OF_A_VALUE * values)))


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Convert bytes to a network's input: numbers from -1 to 1, in the same shape."""
    # One call of `to` would convert on the CPU, and copy four bytes per value instead of one.
    return pixels.to(device).to(torch.get_default_dtype()) / 127.5 - 1
