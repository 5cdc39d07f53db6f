"""The order of the training samples: a pure function of (seed, epoch, position, batch size).

The order does not depend on the number of ranks, on the storage format, or on earlier steps. So
the only state of a resumed run is the step, and any number of ranks sees the same global batches.

The samples of a *block* have consecutive numbers and are adjacent in a shard. In each epoch

1. the blocks are shuffled, and the samples within each block;
2. that sequence is cut into *lanes* of equal length;
3. a batch takes a sample from each lane in turn: position p of the epoch is in lane p mod lanes.

So a lane is read block by block. Rank r of n trains on positions r, r + n, r + 2n, …, and reads
only the lanes r, r + n, …, if n divides the number of lanes and the batch size. One block of each
lane is open at a time; the samples of all open blocks are the *shuffle window*. A dataset that is
not larger than the window is shuffled as a whole.

Source: MosaicML's StreamingDataset, "Elastic determinism" and "Shuffling" (docs.mosaicml.com): it
calls the lanes canonical nodes and the blocks shuffle blocks.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

# Samples per read: about a hundred kilobytes of small images or ten megabytes of large ones, which
# is large enough for a request to a storage service.
BLOCK = 256
# 48 lanes: many numbers of ranks divide 48.
SHUFFLE_WINDOW = 48 * BLOCK


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of `samples` training samples in global batches of `batch_size`.

    Every batch is full, so that all steps weigh the same. An epoch drops the remainder of its
    permutation, which differs from epoch to epoch (the usual drop_last). A dataset that is smaller
    than a batch is repeated within it.
    """

    samples: int
    batch_size: int
    seed: int
    shuffle_window: int = SHUFFLE_WINDOW
    repeats: int = 1
    """The number of copies of a sample in a batch; an epoch then sees a part of the samples."""

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of an epoch, at least one."""
        return max(1, self.samples // self.batch_size)

    def batch(self, step: int) -> Tensor:
        """The sample numbers, shape (B,), of the global batch of `step`; steps count from 0."""
        epoch = step // self.steps_per_epoch
        permutation = _permutation(self.samples, self.shuffle_window, self.seed, epoch)
        return permutation[self._positions(step) // self.repeats % self.samples]

    def draws(self, step: int, count: int) -> Tensor:
        """Return `count` random numbers for each sample of a batch, from 0 to 1, shape (B, count).

        They are a function of (seed, epoch, sample), whatever the batch size; those of copies, of
        (seed, epoch, position).
        """
        epoch = step // self.steps_per_epoch
        return _draws(self.samples, self.seed, epoch, count)[self._rows(step)]

    def shifts(self, step: int, pixels: int) -> Tensor:
        """Return shifts (down, right) in whole pixels up to `pixels`, shape (B, 2), likewise."""
        epoch = step // self.steps_per_epoch
        return _shifts(self.samples, self.seed, epoch, pixels)[self._rows(step)]

    def _positions(self, step: int) -> Tensor:
        first = step % self.steps_per_epoch * self.batch_size
        return torch.arange(first, first + self.batch_size)

    def _rows(self, step: int) -> Tensor:
        return self.batch(step) if self.repeats == 1 else self._positions(step) % self.samples


def lanes(shuffle_window: int) -> int:
    """Return the number of lanes for a shuffle window."""
    return max(1, shuffle_window // BLOCK)


def blocks_in_use(samples: int, *, shuffle_window: int, batch_size: int, ranks: int) -> int:
    """Return how many blocks a rank must cache to read each of its blocks once per epoch.

    The cache drops the least recently used block: when a lane reaches its next block, that is a
    block that an earlier lane has finished.
    """
    if samples <= shuffle_window:
        return -(-samples // BLOCK)
    count = lanes(shuffle_window)
    mine = count if count % ranks or batch_size % ranks else count // ranks
    return mine + 1


def stream_seed(seed: int, step: int, stream: int) -> int:
    """Return the seed of a network's random draws, such as dropout, in a step of any start."""
    return _hashed(f"{seed}/{step}/{stream}")


# Cached for the current epoch: with a million samples, drawing it in each step would take longer
# than the step.
@functools.lru_cache(maxsize=1)
def _permutation(samples: int, shuffle_window: int, seed: int, epoch: int) -> Tensor:
    """Return the sample number at each position of an epoch."""
    generator = _generator(seed, "order", epoch)
    if samples <= shuffle_window:
        return torch.randperm(samples, generator=generator)
    blocks = -(-samples // BLOCK)
    # The sort key of a sample in the k-th of the shuffled blocks: random, from k to k + 1.
    position_of_block = torch.randperm(blocks, generator=generator).double()
    within = torch.rand(samples, generator=generator, dtype=torch.float64)
    numbers = torch.arange(samples)
    sequence = (position_of_block[numbers // BLOCK] + within).argsort(stable=True)
    count = lanes(shuffle_window)
    lane, index = numbers % count, numbers // count
    # The first `samples % count` lanes have one more sample.
    first = lane * (samples // count) + lane.clamp(max=samples % count)
    return sequence[first + index]


@functools.lru_cache(maxsize=1)
def _draws(samples: int, seed: int, epoch: int, count: int) -> Tensor:
    return torch.rand(samples, count, generator=_generator(seed, "crop", epoch))


@functools.lru_cache(maxsize=1)
def _shifts(samples: int, seed: int, epoch: int, pixels: int) -> Tensor:
    generator = _generator(seed, "shift", epoch)
    return torch.randint(-pixels, pixels + 1, (samples, 2), generator=generator)


def _generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(_hashed(f"{seed}/{purpose}/{epoch}"))


def _hashed(text: str) -> int:
    """Return a seed of 63 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
