"""Residual networks for small images, with group normalisation.

Source: He et al., arXiv 1512.03385, section 4.2 (the CIFAR networks: three stages of basic blocks,
6n + 2 layers), and Wu and He, arXiv 1803.08494 (group normalisation). Batch normalisation would
take its statistics from each rank's own share of the batch: then the loss would depend on the
number of ranks, and ranks would differ in their running statistics. A group's statistics are of
one image.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_WIDTHS = (16, 32, 64)
_CHANNELS_PER_GROUP = 8

# Blocks per stage by architecture name.
_BLOCKS = {"resnet8": 1, "resnet14": 2, "resnet20": 3}

ARCHITECTURES = tuple(_BLOCKS)


def build(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """An untrained network: images of shape (B, channels, H, W) to logits of shape (B, classes).

    Raises:
        KeyError: there is no such architecture.
    """
    return ResNet(blocks=_BLOCKS[architecture], channels=channels, classes=classes)


class ResidualNetwork(nn.Module):
    """A stem, residual blocks one after the other, the mean over the image, a linear head.

    Args:
        stem: what comes before the blocks.
        stages: the blocks, in order.
        width: channels of the last block.
        classes: the head's outputs.
    """

    def __init__(
        self, stem: nn.Module, stages: Sequence[nn.Module], *, width: int, classes: int
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = nn.Sequential(*stages)
        self.average = GlobalAverage()
        self.head = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape (B, classes), for images of shape (B, channels, H, W)."""
        return self.head(self.average(self.stages(self.stem(images))))

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, see `trainers.plugins`."""
        return list(self.stages)

    def pipeline_parts(self) -> list[nn.Module]:
        """The parts of a pipeline, see `trainers.plugins`."""
        return [self.stem, *self.stages, self.average, self.head]


class ResNet(ResidualNetwork):
    """A stem, three stages that halve the resolution and double the width, a linear head."""

    def __init__(self, *, blocks: int, channels: int, classes: int) -> None:
        stages: list[nn.Module] = []
        width = _WIDTHS[0]
        for stage, next_width in enumerate(_WIDTHS):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(_Block(width, next_width, stride))
                width = next_width
        convolution = _convolution(channels, _WIDTHS[0], 1)
        stem = nn.Sequential(convolution, _norm(_WIDTHS[0]), nn.ReLU())
        super().__init__(stem, stages, width=width, classes=classes)


class GlobalAverage(nn.Module):
    """The mean over an image."""

    def forward(self, features: Tensor) -> Tensor:
        """Features of shape (B, C, H, W) to their means, of shape (B, C)."""
        return torch.mean(features, dim=(2, 3))


class _Block(nn.Module):
    def __init__(self, width_in: int, width_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(width_in, width_out, stride)
        self.norm1 = _norm(width_out)
        self.conv2 = _convolution(width_out, width_out, 1)
        self.norm2 = _norm(width_out)
        self.stride = stride
        self.more_channels = width_out - width_in

    def forward(self, features: Tensor) -> Tensor:
        residual = functional.relu(self.norm1(self.conv1(features)))
        residual = self.norm2(self.conv2(residual))
        # The paper's option A: a shortcut without parameters, missing channels are 0.
        shortcut = features[:, :, :: self.stride, :: self.stride]
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self.more_channels))
        return functional.relu(residual + shortcut)


def _convolution(width_in: int, width_out: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(width_in, width_out, 3, stride=stride, padding=1, bias=False)


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(width // _CHANNELS_PER_GROUP, width)
