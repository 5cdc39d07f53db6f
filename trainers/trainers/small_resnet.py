"""Residual networks for small images, of 8, 14 and 20 layers, which no library has.

Source: He et al., arXiv 1512.03385, section 4.2 (6n + 2 layers, shortcuts without parameters).

They use group normalization (Wu and He, arXiv 1803.08494), whose statistics are of one image. Batch
normalization takes its statistics from each rank's share of the batch, so that the loss depends on
the number of ranks.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

_COUNTS = {f"resnet{6 * count + 2}": count for count in (1, 2, 3)}
ARCHITECTURES = tuple(_COUNTS)


def build(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """Build an untrained network: images (B, channels, H, W) to logits (B, classes).

    Raises:
        KeyError: there is no such architecture.
    """
    return SmallResNet(_COUNTS[architecture], channels=channels, classes=classes)


class SmallResNet(nn.Module):
    """A stem, stages of `count` residual blocks, the mean over the image, and a linear head."""

    def __init__(
        self, count: int, *, channels: int, classes: int, widths: tuple[int, ...] = (16, 32, 64)
    ) -> None:
        super().__init__()
        width = widths[0]
        self.stem = nn.Sequential(*_convolution(channels, width, 1), nn.ReLU())
        blocks: list[nn.Module] = []
        for inner in widths:
            for _ in range(count):
                blocks.append(_Block(width, inner))
                width = inner
        self.stages = nn.Sequential(*blocks)
        average = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Sequential(average, nn.Flatten(), nn.Linear(width, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, shape (B, classes), for images of shape (B, channels, H, W)."""
        return self.head(self.stages(self.stem(images)))

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, see `trainers.plugins`."""
        return list(self.stages)

    def pipeline_parts(self) -> list[nn.Module]:
        """The parts of a pipeline, see `trainers.plugins`."""
        return [self.stem, *self.stages, self.head]


class _Block(nn.Module):
    """Two 3x3 convolutions. One that widens halves the resolution; new channels start as 0."""

    def __init__(self, width: int, outer: int) -> None:
        super().__init__()
        self._stride, self._more_channels = 1 if width == outer else 2, outer - width
        first, second = _convolution(width, outer, self._stride), _convolution(outer, outer, 1)
        self.residual = nn.Sequential(*first, nn.ReLU(), *second)

    def forward(self, features: Tensor) -> Tensor:
        shortcut = features[:, :, :: self._stride, :: self._stride]
        shortcut = functional.pad(shortcut, (0, 0, 0, 0, 0, self._more_channels))
        return functional.relu(self.residual(features) + shortcut)


def _convolution(width: int, outer: int, stride: int) -> tuple[nn.Module, nn.Module]:
    norm = nn.GroupNorm(max(1, outer // 8), outer)
    return nn.Conv2d(width, outer, 3, stride=stride, padding=1, bias=False), norm
