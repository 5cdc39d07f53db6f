"""Agreement of all ranks after a step: the mean loss, and whether to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.parallelism.world import World

# A sum over the ranks costs a small network on CPUs a tenth of its step. On a GPU, reading the sum
# waits until the device has done all that is queued. While steps take as long as those before, a
# rank learns of a SIGTERM to another one after this time, or after its step.
SECONDS_BETWEEN = 0.1
MOST_STEPS_BETWEEN = 100


@dataclass(frozen=True)
class StepStatus:
    """The same on all ranks: the batch's mean loss, and whether any rank was asked to stop."""

    mean_loss: float
    is_stopping: bool


class StepSynchronisation:
    """Ranks synchronise about ten times a second, at the same steps.

    They derive the number of steps in between from the mean of their times, so that all of them
    choose the same step and no rank waits for one that does not take part.
    """

    def __init__(self, world: World, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._world = world
        self._clock = clock
        self._next_step = 0
        self._last: tuple[int, float] | None = None

    def is_due(self, step: int) -> bool:
        """Whether to synchronise in `step`; steps are counted from 1."""
        return step >= self._next_step

    def begin(self, step: int, loss: Tensor, *, stop: bool) -> Callable[[], StepStatus]:
        """Begin the sum over the ranks, which runs beside the optimizer; the result waits for it.

        `loss` is this rank's part of the batch's mean loss, a scalar; `stop` is of this rank.
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
