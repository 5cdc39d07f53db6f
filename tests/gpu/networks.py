"""Networks that fail on purpose: `--model tests.gpu.networks:NAME`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CYCLES = 10**13  # cycles of the GPU's clock: more than an hour


class Averaging(nn.Module):
    """Its pooling has a backward pass that adds up in any order on CUDA."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, 8, 3)
        self.pooling = nn.AdaptiveAvgPool2d(5)
        self.head = nn.Linear(8 * 25, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.pooling(self.convolution(images)).flatten(1))


class Hanging(nn.Module):
    """Starts a kernel that does not end."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            torch.cuda._sleep(_CYCLES)  # pyright: ignore[reportPrivateUsage] - there is no public one
        return self.head(images.mean(dim=(2, 3)))
