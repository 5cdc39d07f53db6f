"""Which sample is trained on when: a pure function of (seed, epoch, position, global batch).

The order does not depend on the number of ranks, on how samples are stored, or on earlier steps. So
a resumed run needs one integer, the step, and any number of ranks sees the same global batches.

Samples of one *block* have neighbouring numbers and are neighbours in a shard. In each epoch

1. the blocks are shuffled, and the samples within each;
2. that sequence is cut into *lanes* of equal length;
3. a batch takes a sample from each lane in turn: position p of the epoch is of lane p mod lanes.

Hence a lane is read block after block, and rank r of n, which trains on positions r, r + n, r + 2n
…, reads only the lanes r, r + n …, if n divides lanes and batch. As many blocks as there are lanes
are open at a time, and mixed: their samples are the *shuffle window*. A dataset that fits the
window is shuffled as a whole.

Source: MosaicML's StreamingDataset, "Elastic determinism" and "Shuffling" (docs.mosaicml.com): its
canonical nodes are the lanes, its shuffle blocks the blocks.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# Samples of one read: some hundred kilobytes of small images, some ten megabytes of large ones, so
# that a read is worth a request to a storage service.
BLOCK = 256
# 48 lanes, which many numbers of ranks divide.
SHUFFLE_WINDOW = 48 * BLOCK


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
    shuffle_window: int = SHUFFLE_WINDOW

    @property
    def steps_per_epoch(self) -> int:
        """Steps that an epoch takes, at least one."""
        return max(1, self.samples // self.batch_size)

    def batch(self, step: int) -> Tensor:
        """The global batch of `step`, counted from 0: sample numbers, shape (B,)."""
        epoch, position = divmod(step, self.steps_per_epoch)
        positions = torch.arange(position * self.batch_size, (position + 1) * self.batch_size)
        permutation = _permutation(self.samples, self.shuffle_window, self.seed, epoch)
        return permutation[positions % self.samples]

    def shifts(self, step: int, pixels: int) -> Tensor:
        """How far each sample of the batch is moved down and right in this epoch.

        Returns:
            Whole pixels between -pixels and +pixels, shape (B, 2), for each sample the same however
            the batches are cut.
        """
        epoch = step // self.steps_per_epoch
        return _drawn_shifts(self.samples, self.seed, epoch, pixels)[self.batch(step)]


def lanes(shuffle_window: int) -> int:
    """How many blocks are mixed."""
    return max(1, shuffle_window // BLOCK)


def blocks_in_use(samples: int, *, shuffle_window: int, batch_size: int, ranks: int) -> int:
    """How many blocks a rank holds, so that it reads each of its blocks once an epoch.

    The least recently used block is dropped: when a lane goes on to its next block, that is one
    that an earlier lane has finished.
    """
    if samples <= shuffle_window:
        return -(-samples // BLOCK)
    count = lanes(shuffle_window)
    mine = count if count % ranks or batch_size % ranks else count // ranks
    return mine + 1


def shifted(images: Tensor, offsets: Tensor) -> Tensor:
    """Move each image, shape (B, C, H, W), by its own offset, filling with 0.

    Offsets are whole pixels (down, right), shape (B, 2).
    """
    count, _, height, width = images.shape
    reach = int(offsets.abs().max()) if count else 0
    padded = functional.pad(images, (reach, reach, reach, reach))
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # by first row and first column
    first = reach - offsets
    return windows[torch.arange(count), :, first[:, 0], first[:, 1]]


def stream_seed(seed: int, step: int, stream: int) -> int:
    """The seed of a network's own draws, as dropout's, in a step: a resumed run draws alike."""
    return _hashed(f"{seed}/{step}/{stream}")


# Kept for the epoch in progress: with a million samples, drawing it in each step would take longer
# than the step.
@functools.lru_cache(maxsize=1)
def _permutation(samples: int, shuffle_window: int, seed: int, epoch: int) -> Tensor:
    """The sample at each position of an epoch."""
    generator = _generator(seed, "order", epoch)
    if samples <= shuffle_window:
        return torch.randperm(samples, generator=generator)
    blocks = -(-samples // BLOCK)
    # In block k of the shuffled blocks: a number between k and k + 1 for each sample, to sort by.
    position_of_block = torch.randperm(blocks, generator=generator).double()
    within = torch.rand(samples, generator=generator, dtype=torch.float64)
    numbers = torch.arange(samples)
    sequence = (position_of_block[numbers // BLOCK] + within).argsort(stable=True)
    count = lanes(shuffle_window)
    lane, index = numbers % count, numbers // count
    # The first `samples % count` lanes are longer by one.
    first = lane * (samples // count) + lane.clamp(max=samples % count)
    return sequence[first + index]


@functools.lru_cache(maxsize=1)
def _drawn_shifts(samples: int, seed: int, epoch: int, pixels: int) -> Tensor:
    return torch.randint(
        -pixels, pixels + 1, (samples, 2), generator=_generator(seed, "shift", epoch)
    )


def _generator(seed: int, purpose: str, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(_hashed(f"{seed}/{purpose}/{epoch}"))


def _hashed(text: str) -> int:
    """A seed of 63 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
