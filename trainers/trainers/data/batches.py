"""A rank's share of each global batch, prepared while the steps before it are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainers.data.images import Samples, SampleSource
from trainers.data.order import Order, shifted, shifts

# Beyond the one in use, so that training does not wait for an occasional slow read.
_CHUNKS_AHEAD = 2
# Small shares are prepared several steps at a time: for a single one, switching between Python's
# threads would take longer than reading it.
_CHUNK_BYTES = 1 << 20
_MOST_STEPS = 64


class Batches:
    """The shares of one rank, in the order of the steps.

    One thread reads, decodes and shifts. Decoders and torch's kernels release Python's lock, so
    that it runs beside the steps. It prepares a chunk of steps at a time: one step, unless shares
    are small.

    Args:
        source: the training images.
        order: which of them are of which step.
        share: a rank's part of a batch, from `trainers.parallelism.mesh.RankCoordinates`.
        shift_pixels: how far images are moved at most.
        steps: of the whole run; later ones are not prepared.
        pin_memory: whether shares are in pinned memory, from which CUDA devices copy without the
            host.
    """

    def __init__(
        self,
        source: SampleSource,
        order: Order,
        share: Callable[[Tensor], Tensor],
        *,
        shift_pixels: int,
        steps: int,
        pin_memory: bool = False,
    ) -> None:
        self._source = source
        self._order = order
        self._share = share
        self._shift_pixels = shift_pixels
        self._steps = steps
        self._pin_memory = pin_memory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._chunks: deque[tuple[range, Future[list[Samples]]]] = deque()
        self._steps_of_a_chunk = 1

    def take(self, step: int) -> Samples:
        """The share of `step`: bytes in the CPU's memory.

        Raises:
            Exception: reading failed, for this share or another one of its chunk.
        """
        while self._chunks and step not in self._chunks[0][0]:
            self._chunks.popleft()
        following = self._chunks[-1][0].stop if self._chunks else step
        while len(self._chunks) <= _CHUNKS_AHEAD and following < max(step + 1, self._steps):
            count = min(self._steps_of_a_chunk, max(step + 1, self._steps) - following)
            steps = range(following, following + count)
            self._chunks.append((steps, self._thread.submit(self._make, steps)))
            following = steps.stop
        steps, made = self._chunks[0]
        share = made.result()[step - steps.start]
        if len(steps) == 1:
            fitting = _CHUNK_BYTES // max(1, share.inputs.nbytes)
            self._steps_of_a_chunk = max(1, min(_MOST_STEPS, fitting))
        return share

    def _make(self, steps: range) -> list[Samples]:
        batches = [self._order.batch(step) for step in steps]
        mine = self._share(torch.arange(len(batches[0].samples)))
        samples = self._source.take(torch.cat([batch.samples[mine] for batch in batches]))
        pixels = samples.inputs
        if self._shift_pixels:
            offsets = [
                shifts(
                    batch,
                    samples=self._order.samples,
                    seed=self._order.seed,
                    pixels=self._shift_pixels,
                )[mine]
                for batch in batches
            ]
            pixels = shifted(pixels, torch.cat(offsets))
        labels = samples.labels
        if self._pin_memory:
            pixels, labels = pixels.pin_memory(), labels.pin_memory()
        return [
            Samples(inputs=part, labels=theirs)
            for part, theirs in zip(pixels.split(len(mine)), labels.split(len(mine)), strict=True)
        ]
