"""The speed of training, its waits for data, and its peak memory.

A CPU waits for data while the host does. A GPU waits only while its queue is empty until the next
images come. CUDA events measure that on the device; they are read in steps that wait for the device
anyway.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import torch

_MILLISECONDS = 1_000  # per second
Gap = tuple[torch.cuda.Event, torch.cuda.Event]


@dataclass(kw_only=True)
class Speed:
    """Counts the images of all ranks and the waits of this rank's device, from `start` on."""

    devices: int
    device_type: str = "cpu"
    clock: Callable[[], float] = time.perf_counter
    images: int = 0
    seconds: float = 0.0
    data_seconds: float = 0.0
    _started: float = 0.0
    _asked: tuple[float, int] = (0.0, 0)
    _gaps: deque[Gap] = field(default_factory=deque[Gap])

    def start(self) -> None:
        """Start the clock."""
        self._started = self.clock()

    def count(self, images: int) -> None:
        """Record the end of a step with this number of images."""
        self.images += images
        self.seconds = self.clock() - self._started

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Leave out the time inside the block, such as that of an evaluation."""
        began = self.clock()
        yield
        self._started += self.clock() - began

    @contextlib.contextmanager
    def waiting_for_data(self) -> Generator[None]:
        """Measure how long this rank's device waits for data inside the block."""
        if self.device_type == "cuda":
            idle = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            idle[0].record()
            yield
            idle[1].record()
            self._gaps.append(idle)
            return
        began = self.clock()
        yield
        self.data_seconds += self.clock() - began

    def _add_finished_gaps(self) -> None:
        while self._gaps and self._gaps[0][1].query():
            begin, end = self._gaps.popleft()
            self.data_seconds += begin.elapsed_time(end) / _MILLISECONDS

    def images_per_second_since_asked(self) -> float:
        """Return the speed since the last call."""
        self._add_finished_gaps()
        seconds, images = self._asked
        self._asked = (self.seconds, self.images)
        passed = self.seconds - seconds
        return (self.images - images) / passed if passed else 0.0

    def report(self) -> dict[str, float]:
        """Return the speed, of all devices and per device, and the wait for data."""
        self._add_finished_gaps()
        rate = self.images / self.seconds if self.seconds else 0.0
        return {
            "devices": self.devices,
            "train_seconds": self.seconds,
            "images_per_second": rate,
            "images_per_second_per_device": rate / self.devices,
            "data_wait_seconds": self.data_seconds,
            "data_wait_fraction": self.data_seconds / self.seconds if self.seconds else 0.0,
        }


def peak_memory_bytes(device: torch.device) -> int:
    """Return this rank's peak memory: that of tensors on its GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # getrusage(2) reports bytes on macOS, KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
