"""Prefetching: a rank's share of each global batch is read and copied during earlier steps.

On CUDA, copies run in a separate stream. The device waits for the copy of a step's share; the host
does not. Source: docs.pytorch.org, "CUDA semantics" (streams; pinned memory).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.data.images import RandomCrop, Samples, SampleSource, random_views, shifted
from trainers.data.order import Order
from trainers.parallelism.devices import thread_of

# Steps to prepare in advance, so that training does not wait for an occasional slow read.
_STEPS_AHEAD = 2
CPU = torch.device("cpu")


@dataclass(eq=False)
class Batches:
    """One rank's shares of the batches, in the order of the steps.

    One thread reads, decodes and crops the samples. It runs in parallel with the steps, since
    decoders and torch's kernels release Python's lock.
    """

    source: SampleSource
    order: Order
    share: Callable[[Tensor], Tensor]
    """Returns the rank's part of a batch: `trainers.parallelism.mesh.RankCoordinates.share`."""
    steps: int
    """The number of steps of the whole run: no share beyond them is prepared."""
    crop: RandomCrop | None = None
    """The part of an image to train on; None: samples as the source has them."""
    shift_pixels: int = 0
    """The largest random shift of an image that is not cropped."""
    device: torch.device = CPU
    """Shares for CUDA are put into pinned memory, from which it copies asynchronously."""

    def __post_init__(self) -> None:
        self._thread = thread_of(self.device, "batches")
        self._made: dict[int, Future[Samples]] = {}

    def take(self, step: int) -> Samples:
        """Return the share of `step`, in the CPU's memory.

        Raises:
            Exception: the samples cannot be read.
        """
        wanted = range(step, max(step + 1, min(step + 1 + _STEPS_AHEAD, self.steps)))
        self._made = {
            each: self._made.get(each) or self._thread.submit(self._make, each) for each in wanted
        }
        return self._made[step].result()

    def _make(self, step: int) -> Samples:
        numbers = self.share(self.order.batch(step))
        if self.crop is not None:
            draws = self.share(self.order.draws(step, self.crop.DRAWS))
            samples = random_views(self.source, numbers, self.crop, draws)
        else:
            samples = self.source.take(numbers)
        if self.shift_pixels:
            offsets = self.share(self.order.shifts(step, self.shift_pixels))
            samples = Samples(inputs=shifted(samples.inputs, offsets), labels=samples.labels)
        if self.device.type != "cuda":
            return samples
        return Samples(inputs=samples.inputs.pin_memory(), labels=samples.labels.pin_memory())


@dataclass(eq=False)
class DeviceFeed:
    """One rank's shares of the batches, on its device."""

    shares: Callable[[int], Samples]
    """Returns the share of a step in the CPU's memory, which must be pinned if `device` is CUDA."""
    device: torch.device
    steps: int
    """The number of steps of the whole run: no share beyond them is copied."""
    moves_labels: bool
    """Whether to copy the labels to the device, too."""

    def __post_init__(self) -> None:
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._next: tuple[int, Samples] | None = None

    def take(self, step: int) -> Samples:
        """Return the share of `step`.

        Raises:
            Exception: the samples cannot be read.
        """
        if self._stream is None:
            return self._moved(self.shares(step))
        if self._next is None or self._next[0] != step:
            self._next = step, self._copied(step, self._stream)
        samples, self._next = self._next[1], None
        computing = torch.cuda.current_stream(self.device)
        computing.wait_stream(self._stream)
        for tensor in (samples.inputs, samples.labels):
            if tensor.device == self.device:
                # The allocator must not reuse the memory for the next copy before the step is done.
                tensor.record_stream(computing)
        return samples

    def prefetch(self, step: int) -> None:
        """Start the copy for `step` on CUDA, as soon as the share is read; do nothing on a CPU.

        Blocks until the share is read: first queue all work of the step before.
        """
        if self._stream is not None and self._next is None and step < self.steps:
            self._next = step, self._copied(step, self._stream)

    def _copied(self, step: int, stream: torch.cuda.Stream) -> Samples:
        share = self.shares(step)
        with torch.cuda.stream(stream):
            return self._moved(share)

    def _moved(self, share: Samples) -> Samples:
        labels = share.labels
        return Samples(
            inputs=share.inputs.to(self.device, non_blocking=True),
            labels=labels.to(self.device, non_blocking=True) if self.moves_labels else labels,
        )
