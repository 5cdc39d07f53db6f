"""Samples as tensors, by number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Inputs and labels, by number.

    Of images: bytes of shape (N, C, H, W), and numbers of classes, int64 of shape (N,).
    """

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, numbers: Tensor) -> Samples:
        """Some of them, in the order of `numbers`."""
        return Samples(inputs=self.inputs[numbers], labels=self.labels[numbers])


class SampleSource(Protocol):
    """Samples by number, from 0: in memory, as `Samples` are, or generated or read on demand."""

    def __len__(self) -> int: ...

    def take(self, numbers: Tensor) -> Samples:
        """The samples of these numbers, in that order. A number always has the same sample."""
        ...


def to_input(pixels: Tensor, device: torch.device) -> Tensor:
    """Bytes to a network's input: numbers from -1 to 1, of the same shape."""
    # Copies bytes, not numbers of four bytes: `to` with both arguments would convert on the CPU.
    return pixels.to(device).to(torch.get_default_dtype()) / 127.5 - 1
