"""Prefetching: a rank's share of each global batch is read and copied during earlier steps.

On CUDA, copies run in a stream of their own, as bytes from pinned memory. The device waits for the
copy of a step's share; the host waits only until the share is read. Source: docs.pytorch.org, "CUDA
semantics" (streams; pinned memory).
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
    """One rank's shares of the batches, on its device, in the order of the steps.

    One thread reads, decodes, crops and copies the samples. It runs in parallel with the steps,
    since decoders and torch's kernels release Python's lock.
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
    moves_labels: bool = True
    """Whether to copy the labels to the device, too."""

    def __post_init__(self) -> None:
        self._thread = thread_of(self.device, "batches")
        self._stream = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._made: dict[int, Future[tuple[Samples, torch.cuda.Event | None]]] = {}

    def take(self, step: int) -> Samples:
        """Return the share of `step`.

        Raises:
            Exception: the samples cannot be read.
        """
        wanted = range(step, max(step + 1, min(step + 1 + _STEPS_AHEAD, self.steps)))
        self._made = {
            each: self._made.get(each) or self._thread.submit(self._make, each) for each in wanted
        }
        samples, copied = self._made[step].result()
        if copied is not None:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copied)
            for tensor in (samples.inputs, samples.labels):
                if tensor.is_cuda:
                    # The allocator must not reuse the memory for a copy before the step is done.
                    tensor.record_stream(computing)
        return samples

    def _make(self, step: int) -> tuple[Samples, torch.cuda.Event | None]:
        numbers = self.share(self.order.batch(step))
        if self.crop is not None:
            draws = self.share(self.order.draws(step, self.crop.DRAWS))
            samples = random_views(self.source, numbers, self.crop, draws)
        else:
            samples = self.source.take(numbers)
        if self.shift_pixels:
            offsets = self.share(self.order.shifts(step, self.shift_pixels))
            samples = Samples(inputs=shifted(samples.inputs, offsets), labels=samples.labels)
        if self._stream is None:
            return self._moved(samples), None
        pinned = Samples(inputs=samples.inputs.pin_memory(), labels=samples.labels.pin_memory())
        copied = torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            moved = self._moved(pinned)
            copied.record()
        return moved, copied

    def _moved(self, samples: Samples) -> Samples:
        labels = samples.labels
        return Samples(
            inputs=samples.inputs.to(self.device, non_blocking=True),
            labels=labels.to(self.device, non_blocking=True) if self.moves_labels else labels,
        )
