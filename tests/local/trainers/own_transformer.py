"""A transformer with a plan for split layers, as a user's own: no library's layers can be split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

from trainers.errors import LaunchInvalid

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

WIDTH, HEADS, DEPTH, PATCH = 16, 2, 2, 4
"""As many blocks and heads as two stages and two tensor ranks need."""


class Transformer(nn.Module):
    """A patch embedding, blocks of attention and perceptron, an average, and a linear head."""

    def __init__(self, *, channels: int, classes: int) -> None:
        super().__init__()
        embedding = nn.Conv2d(channels, WIDTH, PATCH, stride=PATCH)
        self.patches = nn.Sequential(embedding, nn.Flatten(2), Transposed())
        self.encoder = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.head = nn.Sequential(
            nn.LayerNorm(WIDTH), Transposed(), nn.AdaptiveAvgPool1d(1), nn.Flatten(1)
        )
        self.head.append(nn.Linear(WIDTH, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.encoder(self.patches(images)))

    def blocks(self) -> list[nn.Module]:
        return list(self.encoder)

    def pipeline_parts(self) -> list[nn.Module]:
        return [self.patches, *self.encoder, self.head]

    def tensor_parallel_plan(self, ranks: int) -> dict[str, ParallelStyle]:
        """Give each rank whole heads and columns; it sums after the attention and the perceptron.

        Source: Shoeybi et al., arXiv 1909.08053, section 3 (Megatron).
        """
        if HEADS % ranks:
            raise LaunchInvalid(f"{HEADS} heads do not divide into --tensor-parallel {ranks}")
        from torch.distributed.tensor import parallel  # noqa: PLC0415  # slow to import

        columns = ("attention.query", "attention.key", "attention.value", "perceptron.0")
        styles = dict.fromkeys(columns, parallel.ColwiseParallel) | dict.fromkeys(
            ("attention.output", "perceptron.2"), parallel.RowwiseParallel
        )
        return {
            f"encoder.{number}.{name}": style()
            for number in range(DEPTH)
            for name, style in styles.items()
        }


class Transposed(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.transpose(1, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        inner = nn.Linear(WIDTH, 4 * WIDTH)
        self.perceptron = nn.Sequential(inner, nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, features: Tensor) -> Tensor:
        features = features + self.attention(self.norm1(features))
        return features + self.perceptron(self.norm2(features))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, features: Tensor) -> Tensor:
        query, key, value = (
            projected(features).unflatten(2, (-1, WIDTH // HEADS)).transpose(1, 2)
            for projected in (self.query, self.key, self.value)
        )
        heads = functional.scaled_dot_product_attention(query, key, value)
        return self.output(heads.transpose(1, 2).flatten(2))
