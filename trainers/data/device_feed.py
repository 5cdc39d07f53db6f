"""A rank's shares on its device: the copy of the next one runs beside the step that computes.

On CUDA, copies have a stream of their own. A step waits for its own share only, by an event on the
device; the host goes on. Source: docs.pytorch.org, "CUDA semantics" (streams; pinned memory).
"""

from __future__ import annotations

from typing import Protocol

import torch

from trainers.data.images import Images


class Shares(Protocol):
    """Shares by step, in the CPU's memory, as `trainers.data.batches.Batches` has them."""

    def take(self, step: int) -> Images:
        """The share of a step."""
        ...


class DeviceFeed:
    """The shares of one rank, where they are needed.

    Args:
        shares: on the CPU; in pinned memory if `device` is CUDA.
        device: where the pixels go.
        steps: of the whole run; nothing is copied beyond.
        moves_labels: whether the labels go there, too.
    """

    def __init__(
        self, shares: Shares, device: torch.device, *, steps: int, moves_labels: bool
    ) -> None:
        self._shares = shares
        self._device = device
        self._steps = steps
        self._moves_labels = moves_labels
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._next: tuple[int, Images] | None = None

    def take(self, step: int) -> Images:
        """The share of `step`: bytes (B, C, H, W) and labels (B,).

        Raises:
            Exception: what reading it failed with.
        """
        if self._stream is None:
            return self._moved(self._shares.take(step))
        if self._next is None or self._next[0] != step:
            self._next = step, self._copied(step, self._stream)
        images, self._next = self._next[1], None
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._stream)
        for tensor in (images.pixels, images.labels):
            if tensor.device == self._device:
                # The allocator may not give its memory to the next copy before the step is done.
                tensor.record_stream(computing)
        return images

    def prefetch(self, step: int) -> None:
        """Begin the copy for `step`, once the work of the step before it is on its way."""
        if self._stream is not None and self._next is None and step < self._steps:
            self._next = step, self._copied(step, self._stream)

    def _copied(self, step: int, stream: torch.cuda.Stream) -> Images:
        share = self._shares.take(step)
        with torch.cuda.stream(stream):
            return self._moved(share)

    def _moved(self, share: Images) -> Images:
        labels = share.labels
        return Images(
            pixels=share.pixels.to(self._device, non_blocking=True),
            labels=labels.to(self._device, non_blocking=True) if self._moves_labels else labels,
        )
