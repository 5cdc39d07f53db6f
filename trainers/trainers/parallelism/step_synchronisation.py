"""Synchronization of all ranks after a step: the mean loss, and whether to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.parallelism.world import World

# For a small network on CPUs, a sum over the ranks takes a tenth of a step. On a GPU, reading the
# sum waits until the device's queue is empty. So a rank learns of another rank's SIGTERM only after
# about this time, or after the current step if that is longer.
SECONDS_BETWEEN = 0.1
MOST_STEPS_BETWEEN = 100


@dataclass(frozen=True)
class StepStatus:
    """The batch's mean loss, and whether any rank received SIGTERM. It is equal on all ranks."""

    mean_loss: float
    is_stopping: bool


class StepSynchronisation:
    """Decides when the ranks synchronize: about ten times a second, all at the same steps.

    The interval in steps follows from the mean of all ranks' step times. So all ranks choose the
    same step, and no rank waits for a rank that does not take part.
    """

    def __init__(self, world: World, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._world = world
        self._clock = clock
        self._next_step = 0
        self._last: tuple[int, float] | None = None

    def is_due(self, step: int) -> bool:
        """Return whether to synchronize in `step`; steps count from 1."""
        return step >= self._next_step

    def begin(self, step: int, loss: Tensor, *, stop: bool) -> Callable[[], StepStatus]:
        """Start the sum over the ranks, which overlaps with the optimizer; the result waits for it.

        `loss`, a scalar, is this rank's part of the batch's mean loss; `stop`: it received SIGTERM.
        """
        now = self._clock()
        steps, seconds = 1, SECONDS_BETWEEN
        if self._last is not None:
            steps, seconds = step - self._last[0], now - self._last[1]
        self._last = step, now
        mine = torch.tensor([0.0, float(stop), seconds / steps / self._world.size])
        mine = mine.to(loss.device)
        mine[0] = loss
        wait_for_sum = self._world.sum_later(mine)

        def status() -> StepStatus:
            mean_loss, stopping, seconds_per_step = wait_for_sum().tolist()
            steps = SECONDS_BETWEEN / seconds_per_step if seconds_per_step else MOST_STEPS_BETWEEN
            self._next_step = step + max(1, min(MOST_STEPS_BETWEEN, int(steps)))
            return StepStatus(mean_loss, is_stopping=stopping > 0)

        return status
