"""A rank's shares on its device. The next one is copied while the step before it is computed.

On CUDA, copies run in a stream of their own. The device waits for the copy of the step's own share;
the host does not. Source: docs.pytorch.org, "CUDA semantics" (streams; pinned memory).
"""

from __future__ import annotations

from typing import Protocol

import torch

from trainers.data.images import Samples


class Shares(Protocol):
    """Shares by step in the CPU's memory: `trainers.data.batches.Batches`."""

    def take(self, step: int) -> Samples:
        """The share of a step."""
        ...


class DeviceFeed:
    """The shares of one rank, on its device.

    Args:
        shares: on the CPU; in pinned memory if `device` is CUDA.
        device: receives the inputs.
        steps: of the whole run; later ones are not copied.
        moves_labels: whether the device receives the labels, too.
    """

    def __init__(
        self, shares: Shares, device: torch.device, *, steps: int, moves_labels: bool
    ) -> None:
        self._shares = shares
        self._device = device
        self._steps = steps
        self._moves_labels = moves_labels
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next: tuple[int, Samples] | None = None

    def take(self, step: int) -> Samples:
        """The share of `step`.

        Raises:
            Exception: reading it failed.
        """
        if self._stream is None:
            return self._moved(self._shares.take(step))
        if self._next is None or self._next[0] != step:
            self._next = step, self._copied(step, self._stream)
        samples, self._next = self._next[1], None
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for tensor in (samples.inputs, samples.labels):
            if tensor.device == self._device:
                # The allocator may not give its memory to the next copy before the step is done.
                tensor.record_stream(computing)
        return samples

    def prefetch(self, step: int) -> None:
        """Begin the copy for `step`; on CUDA, wait until the share is read.

        Call it when all work of the step before it is queued.
        """
        if self._stream is not None and self._next is None and step < self._steps:
            self._next = step, self._copied(step, self._stream)

    def _copied(self, step: int, stream: torch.cuda.Stream) -> Samples:
        share = self._shares.take(step)
        with torch.cuda.stream(stream):
            return self._moved(share)

    def _moved(self, share: Samples) -> Samples:
        labels = share.labels
        return Samples(
            inputs=share.inputs.to(self._device, non_blocking=True),
            labels=labels.to(self._device, non_blocking=True) if self._moves_labels else labels,
        )
