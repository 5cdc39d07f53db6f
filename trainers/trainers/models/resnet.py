"""Residual networks for small images (8, 14, 20 layers) and large images (18, 34, 50 layers).

Sources: He et al., arXiv 1512.03385, section 4.2 (the CIFAR networks, 6n + 2 layers, shortcuts
without parameters) and table 1 (the others; the bottleneck has its stride in the 3x3 convolution,
"v1.5", as in torchvision and NVIDIA's DeepLearningExamples); Goyal et al., arXiv 1706.02677,
section 5.1 (the last norm of a block starts at 0, in the networks for large images).

They use group normalization (Wu and He, arXiv 1803.08494), whose statistics are of one image. Batch
normalization takes its statistics from each rank's share of the batch, so that the loss depends on
the number of ranks. Only `resnet50-batchnorm` has it, for comparison with published figures: with
the statistics of the global batch on GPUs (SyncBatchNorm, which torch lacks for CPUs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional

_BATCHNORM = "-batchnorm"

Norm = Callable[[int], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Blocks and widths of the stages. Each stage but the first halves the resolution."""

    blocks: tuple[int, ...]
    widths: tuple[int, ...] = (64, 128, 256, 512)
    expansion: int = 1
    """The ratio of a bottleneck's output channels to its width; 1: blocks are not bottlenecks."""
    is_for_small_images: bool = False


_SMALL = {
    f"resnet{6 * count + 2}": Layout(
        blocks=(count,) * 3, widths=(16, 32, 64), is_for_small_images=True
    )
    for count in (1, 2, 3)
}
_LARGE = {
    "resnet18": Layout(blocks=(2, 2, 2, 2)),
    "resnet34": Layout(blocks=(3, 4, 6, 3)),
    "resnet50": Layout(blocks=(3, 4, 6, 3), expansion=4),
}

ARCHITECTURES = (*_SMALL, *_LARGE, *(name + _BATCHNORM for name in _LARGE))


def build(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """Build an untrained network: images (B, channels, H, W) to logits (B, classes).

    Raises:
        KeyError: there is no such architecture.
    """
    layout = {**_SMALL, **_LARGE}[architecture.removesuffix(_BATCHNORM)]

    def norm(width: int) -> nn.Module:
        if architecture.endswith(_BATCHNORM):
            return nn.BatchNorm2d(width)
        return nn.GroupNorm(width // 8 if layout.is_for_small_images else 32, width)

    return ResNet(layout, norm, channels=channels, classes=classes)


class ResNet(nn.Module):
    """A stem, a sequence of residual blocks, the mean over the image, and a linear head."""

    def __init__(self, layout: Layout, norm: Norm, *, channels: int, classes: int) -> None:
        super().__init__()
        width = layout.widths[0]
        if layout.is_for_small_images:
            self.stem = nn.Sequential(_convolution(channels, width, 3, 1), norm(width), nn.ReLU())
        else:
            pool = nn.MaxPool2d(3, stride=2, padding=1)
            first = _convolution(channels, width, 7, 2)
            self.stem = nn.Sequential(first, norm(width), nn.ReLU(), pool)
        blocks: list[nn.Module] = []
        for stage, (inner, count) in enumerate(zip(layout.widths, layout.blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(_Block(layout, width, inner, stride, norm))
                width = inner * layout.expansion
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
    """A residual block: two 3x3 convolutions, or as a bottleneck 1x1, 3x3, 1x1."""

    def __init__(self, layout: Layout, width: int, inner: int, stride: int, norm: Norm) -> None:
        super().__init__()
        outer = inner * layout.expansion
        if layout.expansion > 1:
            layers = [(width, inner, 1, 1), (inner, inner, 3, stride), (inner, outer, 1, 1)]
        else:
            layers = [(width, inner, 3, stride), (inner, outer, 3, 1)]
        parts: list[nn.Module] = []
        for layer in layers:
            parts += [_convolution(*layer), norm(layer[1]), nn.ReLU()]
        self.residual = nn.Sequential(*parts[:-1])
        if width == outer and stride == 1:
            self.shortcut = nn.Identity()
        elif layout.is_for_small_images:
            self.shortcut = _Subsampled(stride, outer - width)
        else:
            self.shortcut = nn.Sequential(_convolution(width, outer, 1, stride), norm(outer))
        if not layout.is_for_small_images:
            nn.init.zeros_(self.residual[-1].get_parameter("weight"))

    def forward(self, features: Tensor) -> Tensor:
        return functional.relu(self.residual(features) + self.shortcut(features))


class _Subsampled(nn.Module):
    """The paper's option A: a shortcut without parameters, whose additional channels are 0."""

    def __init__(self, stride: int, more_channels: int) -> None:
        super().__init__()
        self.stride = stride
        self.more_channels = more_channels

    def forward(self, features: Tensor) -> Tensor:
        features = features[:, :, :: self.stride, :: self.stride]
        return functional.pad(features, (0, 0, 0, 0, 0, self.more_channels))


def _convolution(width_in: int, width_out: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(width_in, width_out, size, stride=stride, padding=size // 2, bias=False)
