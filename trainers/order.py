"""Which sample is trained on when: a pure function of (seed, epoch, position, global batch).

Nothing here depends on the number of ranks or on what ran before, so that a resumed run needs one
integer, the step, and any number of ranks sees the same global batches.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A global batch: sample numbers, shape (B,), and the epoch that they are of."""

    epoch: int
    samples: Tensor


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of `samples` training samples in global batches of `batch_size`.

    Every batch is full: an epoch leaves out the remainder of its permutation, a different one each
    time (the usual drop_last), and a dataset smaller than a batch is repeated within it. So each
    step weighs the same.
    """

    samples: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps that an epoch takes, at least one."""
        return max(1, self.samples // self.batch_size)

    def batch(self, step: int) -> Batch:
        """The global batch of `step`, counted from 0."""
        epoch, position = divmod(step, self.steps_per_epoch)
        places = torch.arange(position * self.batch_size, (position + 1) * self.batch_size)
        permutation = _permutation(self.samples, self.seed, epoch)
        return Batch(epoch=epoch, samples=permutation[places % self.samples])


def shifts(batch: Batch, *, samples: int, seed: int, pixels: int) -> Tensor:
    """How far each sample of the batch is moved down and right in this epoch.

    Returns:
        Whole pixels between -pixels and +pixels, shape (B, 2), for each sample the same however
        the batches are cut.
    """
    return _drawn_shifts(samples, seed, batch.epoch, pixels)[batch.samples]


def shifted(images: Tensor, offsets: Tensor) -> Tensor:
    """Move each image by its own offset, filling with 0.

    Args:
        images: shape (B, C, H, W).
        offsets: whole pixels (down, right), shape (B, 2).

    Returns:
        Images of the same shape.
    """
    count, channels, height, width = images.shape
    reach = int(offsets.abs().max()) if count else 0
    padded = functional.pad(images, (reach, reach, reach, reach))
    sample = torch.arange(count)[:, None, None, None]
    channel = torch.arange(channels)[None, :, None, None]
    row = (torch.arange(height) + reach)[None, None, :, None] - offsets[:, 0, None, None, None]
    column = (torch.arange(width) + reach)[None, None, None, :] - offsets[:, 1, None, None, None]
    return padded[sample, channel, row, column]


# Kept for the epoch in progress: drawing anew for each step would cost more than the step itself
# with a million samples.
@functools.lru_cache(maxsize=1)
def _permutation(samples: int, seed: int, epoch: int) -> Tensor:
    return torch.randperm(samples, generator=_generator(seed, "order", epoch))


@functools.lru_cache(maxsize=1)
def _drawn_shifts(samples: int, seed: int, epoch: int, pixels: int) -> Tensor:
    return torch.randint(
        -pixels, pixels + 1, (samples, 2), generator=_generator(seed, "shift", epoch)
    )


def _generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{purpose}/{epoch}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
