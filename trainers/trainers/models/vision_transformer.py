"""Vision transformers, with support for tensor and pipeline parallelism.

Source: Dosovitskiy et al., arXiv 2010.11929, in the plain form of Beyer et al., arXiv 2205.01580:
fixed sine-cosine positions and an average over the patches instead of learned positions and a class
token, so that one set of weights takes any image size. Layers normalise each patch separately, so
the loss does not depend on the number of ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.errors import LaunchInvalid

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

_MLP_RATIO = 4
_LONGEST_WAVE = 10_000.0


# Patch sizes in pixels. The first is for images from 8 pixels; the published others are for 224.
_LAYOUTS = {
    "vit-digits": {"patch": 2, "width": 64, "depth": 4, "heads": 4},
    "vit-tiny": {"patch": 16, "width": 192, "depth": 12, "heads": 3},
    "vit-small": {"patch": 16, "width": 384, "depth": 12, "heads": 6},
    "vit-base": {"patch": 16, "width": 768, "depth": 12, "heads": 12},
}

ARCHITECTURES = tuple(_LAYOUTS)


def build(architecture: str, *, channels: int, classes: int) -> nn.Module:
    """Build an untrained network: images (B, channels, H, W) to logits (B, classes).

    Raises:
        KeyError: there is no such architecture.
    """
    return VisionTransformer(**_LAYOUTS[architecture], channels=channels, classes=classes)


class VisionTransformer(nn.Module):
    """A patch embedding, blocks of attention and perceptron, an average, and a linear head."""

    def __init__(
        self, *, patch: int, width: int, depth: int, heads: int, channels: int, classes: int
    ) -> None:
        super().__init__()
        self.patches = _Patches(channels, width, patch)
        self.encoder = nn.Sequential(*(_Block(width, heads) for _ in range(depth)))
        self.head = _Head(width, classes)
        self._heads = heads
        for module in self.encoder.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, shape (B, classes), for images of shape (B, channels, H, W)."""
        return self.head(self.encoder(self.patches(images)))

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, see `trainers.plugins`."""
        return list(self.encoder)

    def pipeline_parts(self) -> list[nn.Module]:
        """The parts of a pipeline, see `trainers.plugins`."""
        return [self.patches, *self.encoder, self.head]

    def tensor_parallel_plan(self, ranks: int) -> dict[str, ParallelStyle]:
        """Give each rank whole heads and columns; it sums after the attention and the perceptron.

        Source: Shoeybi et al., arXiv 1909.08053, section 3 (Megatron).

        Raises:
            LaunchInvalid: `ranks` does not divide the number of heads.
        """
        if self._heads % ranks:
            raise LaunchInvalid(
                f"{self._heads} heads of attention do not divide into --tensor-parallel "
                f"{ranks}: take a divisor, or another model"
            )
        from torch.distributed.tensor import parallel  # noqa: PLC0415  # slow to import

        columns, rows = parallel.ColwiseParallel, parallel.RowwiseParallel
        of_block = {
            "attention.query": columns,
            "attention.key": columns,
            "attention.value": columns,
            "attention.output": rows,
            "perceptron.0": columns,
            "perceptron.2": rows,
        }
        return {
            f"encoder.{number}.{name}": style()
            for number in range(len(self.encoder))
            for name, style in of_block.items()
        }


class _Patches(nn.Module):
    """Patch embeddings plus position encodings, shape (B, patches, width)."""

    def __init__(self, channels: int, width: int, patch: int) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.embedding(images)
        positions = sine_cosine_positions(*features.shape[1:], like=features)
        return features.flatten(2).transpose(1, 2) + positions


def sine_cosine_positions(width: int, rows: int, columns: int, *, like: Tensor) -> Tensor:
    """Return position encodings, shape (rows * columns, width): the row's, then the column's.

    4 must divide `width`: each coordinate has width / 4 sines and as many cosines, of wavelengths
    from 2 pi to 10,000 times that (Vaswani et al., arXiv 1706.03762, section 3.5).
    """
    waves = torch.arange(width // 4, device=like.device, dtype=like.dtype) / (width // 4)
    frequencies = _LONGEST_WAVE**-waves

    def encoded(places: int) -> Tensor:
        angles = torch.arange(places, device=like.device, dtype=like.dtype)[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    of_row = encoded(rows)[:, None].expand(rows, columns, -1)
    of_column = encoded(columns)[None].expand(rows, columns, -1)
    return torch.cat([of_row, of_column], dim=2).reshape(rows * columns, width)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = _Attention(width, head_width=width // heads)
        self.norm2 = nn.LayerNorm(width)
        inner = _MLP_RATIO * width
        self.perceptron = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, features: Tensor) -> Tensor:
        features = features + self.attention(self.norm1(features))
        return features + self.perceptron(self.norm2(features))


class _Attention(nn.Module):
    def __init__(self, width: int, *, head_width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output = nn.Linear(width, width)
        self._head_width = head_width

    def forward(self, features: Tensor) -> Tensor:
        # Each has shape (B, heads of this rank, patches, head width).
        query, key, value = (
            projected(features).unflatten(2, (-1, self._head_width)).transpose(1, 2)
            for projected in (self.query, self.key, self.value)
        )
        heads = functional.scaled_dot_product_attention(query, key, value)
        return self.output(heads.transpose(1, 2).flatten(2))


class _Head(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, classes)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.norm(features).mean(dim=1))
