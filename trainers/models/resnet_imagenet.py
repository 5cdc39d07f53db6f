"""ResNet-18, -34 and -50: the networks for large images, with a choice of normalisation.

Source: He et al., arXiv 1512.03385, table 1; the bottleneck has its stride in the 3x3 convolution
("v1.5", as in torchvision and NVIDIA's DeepLearningExamples); the last norm of a block starts at 0
(Goyal et al., arXiv 1706.02677, section 5.1).

`resnet50` normalises by group (Wu and He, arXiv 1803.08494, 32 groups), for the reason that
`trainers.models.resnet` gives: the loss does not depend on the number of ranks.
`resnet50-batchnorm` is the network that published figures are of. On GPUs its statistics are of
the global batch (SyncBatchNorm); torch has none for CPUs, where they are of each rank's share.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from trainers.models.resnet import ResidualNetwork

_WIDTHS = (64, 128, 256, 512)
_GROUPS = 32
_EXPANSION = 4

# Blocks per stage, and whether they are bottlenecks.
_LAYOUTS = {
    "resnet18": ((2, 2, 2, 2), False),
    "resnet34": ((3, 4, 6, 3), False),
    "resnet50": ((3, 4, 6, 3), True),
}
_BATCHNORM = "-batchnorm"

ARCHITECTURES = (*_LAYOUTS, *(name + _BATCHNORM for name in _LAYOUTS))

Norm = Callable[[int], nn.Module]


def build(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """An untrained network: images of shape (B, channels, H, W) to logits of shape (B, classes).

    Raises:
        KeyError: there is no such architecture.
    """
    blocks, bottleneck = _LAYOUTS[architecture.removesuffix(_BATCHNORM)]
    norm: Norm = nn.BatchNorm2d if architecture.endswith(_BATCHNORM) else _group_norm
    return ResNet(blocks, bottleneck=bottleneck, norm=norm, channels=channels, classes=classes)


def _group_norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(_GROUPS, width)


class ResNet(ResidualNetwork):
    """A stem that quarters the resolution, four stages that halve it, a linear head."""

    def __init__(
        self, blocks: tuple[int, ...], *, bottleneck: bool, norm: Norm, channels: int, classes: int
    ) -> None:
        stem = nn.Sequential(
            nn.Conv2d(channels, _WIDTHS[0], 7, stride=2, padding=3, bias=False),
            norm(_WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        width = _WIDTHS[0]
        for stage, (inner, count) in enumerate(zip(_WIDTHS, blocks, strict=True)):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                outer = inner * _EXPANSION if bottleneck else inner
                stages.append(_Block(width, inner, outer, stride, norm))
                width = outer
        super().__init__(stem, stages, width=width, classes=classes)


class _Block(nn.Module):
    """Two 3x3 convolutions; or 1x1, 3x3, 1x1 if the outer width is not the inner one."""

    def __init__(self, width_in: int, inner: int, outer: int, stride: int, norm: Norm) -> None:
        super().__init__()
        if outer == inner:
            layers = [(width_in, inner, 3, stride), (inner, outer, 3, 1)]
        else:
            layers = [(width_in, inner, 1, 1), (inner, inner, 3, stride), (inner, outer, 1, 1)]
        self.convolutions = nn.ModuleList(_convolution(*layer) for layer in layers)
        self.norms = nn.ModuleList(norm(layer[1]) for layer in layers)
        self.shortcut = (
            nn.Identity()
            if width_in == outer and stride == 1
            else nn.Sequential(_convolution(width_in, outer, 1, stride), norm(outer))
        )
        nn.init.zeros_(self.norms[-1].get_parameter("weight"))

    def forward(self, features: Tensor) -> Tensor:
        residual = features
        last = len(self.norms) - 1
        for position, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            residual = norm(convolution(residual))
            residual = residual if position == last else functional.relu(residual)
        return functional.relu(residual + self.shortcut(features))


def _convolution(width_in: int, width_out: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(width_in, width_out, size, stride=stride, padding=size // 2, bias=False)
