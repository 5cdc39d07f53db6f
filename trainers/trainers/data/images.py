"""Samples as tensors, addressed by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


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


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Convert bytes to a network's input: numbers from -1 to 1, in the same shape."""
    # One call of `to` would convert on the CPU, and copy four bytes per value instead of one.
    return pixels.to(device).to(torch.get_default_dtype()) / 127.5 - 1
