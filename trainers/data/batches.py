"""A rank's share of each global batch, made ready while the steps before it are computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from trainers.data.images import Images, ImageSource
from trainers.data.order import Order, shifted, shifts

# Beyond the one in use, so that a slow read now and then is not waited for.
_STRETCHES_AHEAD = 2
# Small shares are made some steps at a time: by themselves they would cost more than their reading,
# since threads of Python hinder each other.
_STRETCH_BYTES = 1 << 20
_MOST_STEPS = 64


class Batches:
    """The shares of one rank, in the order of the steps.

    One thread reads, decodes and shifts; decoders and torch's kernels let Python's lock go, so that
    this goes on beside the steps. It makes a *stretch* of steps at a time: one, unless shares are
    small.

    Args:
        source: the training images.
        order: which of them are of which step.
        share: a rank's part of a batch, from `trainers.parallelism.mesh.Place`.
        shift_pixels: how far images are moved at most.
        steps: of the whole run; nothing is made ready beyond.
        pin_memory: put shares where a CUDA device copies from by itself.
    """

    def __init__(
        self,
        source: ImageSource,
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
        self._stretches: deque[tuple[range, Future[list[Images]]]] = deque()
        self._steps_of_a_stretch = 1

    def take(self, step: int) -> Images:
        """The share of `step`: bytes in the CPU's memory.

        Raises:
            Exception: what reading it failed with, or another share of its stretch.
        """
        while self._stretches and step not in self._stretches[0][0]:
            self._stretches.popleft()
        following = self._stretches[-1][0].stop if self._stretches else step
        while len(self._stretches) <= _STRETCHES_AHEAD and following < max(step + 1, self._steps):
            count = min(self._steps_of_a_stretch, max(step + 1, self._steps) - following)
            steps = range(following, following + count)
            self._stretches.append((steps, self._thread.submit(self._make, steps)))
            following = steps.stop
        steps, made = self._stretches[0]
        share = made.result()[step - steps.start]
        if len(steps) == 1:
            fitting = _STRETCH_BYTES // max(1, share.pixels.nbytes)
            self._steps_of_a_stretch = max(1, min(_MOST_STEPS, fitting))
        return share

    def _make(self, steps: range) -> list[Images]:
        batches = [self._order.batch(step) for step in steps]
        mine = self._share(torch.arange(len(batches[0].samples)))
        images = self._source.take(torch.cat([batch.samples[mine] for batch in batches]))
        pixels = images.pixels
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
        labels = images.labels
        if self._pin_memory:
            pixels, labels = pixels.pin_memory(), labels.pin_memory()
        return [
            Images(pixels=part, labels=theirs)
            for part, theirs in zip(pixels.split(len(mine)), labels.split(len(mine)), strict=True)
        ]
