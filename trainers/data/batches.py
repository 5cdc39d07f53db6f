"""A rank's share of each global batch, made ready while the step before it is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainers.data.images import Images, ImageSource
from trainers.data.order import Order, shifted, shifts

# So that a slow read now and then is not waited for; each costs a share of a batch in memory.
_STEPS_AHEAD = 2


class Batches:
    """The shares of one rank, in the order of the steps.

    One thread reads, decodes and shifts; decoders and torch's kernels let Python's lock go, so that
    this goes on beside the step. At most `_STEPS_AHEAD` shares wait to be used.

    Args:
        source: the training images.
        order: which of them are of which step.
        share: a rank's part of a batch, from `trainers.parallelism.mesh.Place`.
        passes: parts that a share is trained on in turn.
        shift_pixels: how far images are moved at most.
        steps: of the whole run; nothing is made ready beyond.
    """

    def __init__(
        self,
        source: ImageSource,
        order: Order,
        share: Callable[[Tensor], Tensor],
        *,
        passes: int,
        shift_pixels: int,
        steps: int,
    ) -> None:
        self._source = source
        self._order = order
        self._share = share
        self._passes = passes
        self._shift_pixels = shift_pixels
        self._steps = steps
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._making: dict[int, Future[list[Images]]] = {}

    def take(self, step: int) -> list[Images]:
        """The share of `step`, in as many parts as there are passes: bytes in the CPU's memory.

        Raises:
            Exception: what reading it failed with.
        """
        self._making = {ahead: made for ahead, made in self._making.items() if ahead >= step}
        for ahead in range(step, max(step + 1, min(step + 1 + _STEPS_AHEAD, self._steps))):
            if ahead not in self._making:
                self._making[ahead] = self._thread.submit(self._make, ahead)
        return self._making.pop(step).result()

    def _make(self, step: int) -> list[Images]:
        batch = self._order.batch(step)
        mine = self._share(torch.arange(len(batch.samples)))
        offsets = shifts(
            batch, samples=self._order.samples, seed=self._order.seed, pixels=self._shift_pixels
        )[mine]
        images = self._source.take(batch.samples[mine])
        pixels = shifted(images.pixels, offsets) if self._shift_pixels else images.pixels
        return [
            Images(pixels=pixels[part :: self._passes], labels=images.labels[part :: self._passes])
            for part in range(self._passes)
        ]
