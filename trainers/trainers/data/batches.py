"""A rank's share of each global batch: prepared, and copied to its device, during earlier steps.

On CUDA, copies run in a stream of their own. The device waits for the copy of the step's own share;
the host does not. Source: docs.pytorch.org, "CUDA semantics" (streams; pinned memory).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.data.images import Samples, SampleSource
from trainers.data.order import Order, shifted

# Beyond the one in use, so that training does not wait for an occasional slow read.
_STEPS_AHEAD = 2


@dataclass(eq=False)
class Batches:
    """The shares of one rank, in the order of the steps.

    One thread reads, decodes and shifts. Decoders and torch's kernels release Python's lock, so
    that it runs beside the steps.
    """

    source: SampleSource
    order: Order
    share: Callable[[Tensor], Tensor]
    """A rank's part of a batch, from `trainers.parallelism.mesh.RankCoordinates`."""
    shift_pixels: int
    """How far images are moved at most."""
    steps: int
    """Of the whole run; later ones are not prepared."""
    pin_memory: bool = False
    """Whether shares are in pinned memory, from which CUDA devices copy without the host."""

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._made: dict[int, Future[Samples]] = {}

    def take(self, step: int) -> Samples:
        """The share of `step`: bytes in the CPU's memory.

        Raises:
            Exception: reading failed.
        """
        wanted = range(step, max(step + 1, min(step + 1 + _STEPS_AHEAD, self.steps)))
        self._made = {
            each: self._made.get(each) or self._thread.submit(self._make, each) for each in wanted
        }
        return self._made[step].result()

    def _make(self, step: int) -> Samples:
        samples = self.source.take(self.share(self.order.batch(step)))
        pixels, labels = samples.inputs, samples.labels
        if self.shift_pixels:
            pixels = shifted(pixels, self.share(self.order.shifts(step, self.shift_pixels)))
        if self.pin_memory:
            pixels, labels = pixels.pin_memory(), labels.pin_memory()
        return Samples(inputs=pixels, labels=labels)


@dataclass(eq=False)
class DeviceFeed:
    """The shares of one rank, on its device."""

    shares: Callable[[int], Samples]
    """Gives the share of a step on the CPU; in pinned memory if `device` is CUDA."""
    device: torch.device
    steps: int
    """Of the whole run; later ones are not copied."""
    moves_labels: bool
    """Whether the device receives the labels, too."""

    def __post_init__(self) -> None:
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._next: tuple[int, Samples] | None = None

    def take(self, step: int) -> Samples:
        """The share of `step`.

        Raises:
            Exception: reading it failed.
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
                # The allocator may not give its memory to the next copy before the step is done.
                tensor.record_stream(computing)
        return samples

    def prefetch(self, step: int) -> None:
        """Begin the copy for `step`; on CUDA, wait until the share is read.

        Call it when all work of the step before it is queued.
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
