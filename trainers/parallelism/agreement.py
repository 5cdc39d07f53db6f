"""What ranks agree on between steps: the mean loss, and whether to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.parallelism.world import World

# Adding up costs a small network on CPUs a tenth of its step, and a GPU its queue: whoever reads
# the sum waits for the device. As long as steps take as long as those before, no rank hears of
# SIGTERM later than this, or than its step's end.
SECONDS_BETWEEN = 0.1
MOST_STEPS_BETWEEN = 100


@dataclass(frozen=True)
class Agreed:
    """The same on all ranks: the batch's mean loss, and whether any rank was told to stop."""

    mean_loss: float
    is_stopping: bool


class Agreement:
    """Ranks agree some ten times a second, at the same steps.

    How many steps that is they agree on, too: from the mean of their times, so that no rank waits
    for one that has left.

    Args:
        world: the ranks.
        clock: seconds.
    """

    def __init__(self, world: World, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._world = world
        self._clock = clock
        self._next_step = 0
        self._last: tuple[int, float] | None = None

    def is_due(self, step: int) -> bool:
        """Whether to agree on `step`; the steps are counted from 1."""
        return step >= self._next_step

    def begin(self, step: int, loss: Tensor, *, stop: bool) -> Callable[[], Agreed]:
        """Add up while the optimizer works: what is returned waits for it.

        Args:
            step: the one whose loss it is.
            loss: this rank's part of the batch's mean loss, a scalar.
            stop: whether this rank shall stop.
        """
        now = self._clock()
        steps, seconds = 1, SECONDS_BETWEEN
        if self._last is not None:
            steps, seconds = step - self._last[0], now - self._last[1]
        self._last = step, now
        mine = torch.tensor([0.0, float(stop), seconds / steps / self._world.size])
        mine = mine.to(loss.device)
        mine[0] = loss
        summed = self._world.sum_later(mine)

        def agreed() -> Agreed:
            mean_loss, stopping, seconds_per_step = summed().tolist()
            steps = SECONDS_BETWEEN / seconds_per_step if seconds_per_step else MOST_STEPS_BETWEEN
            self._next_step = step + max(1, min(MOST_STEPS_BETWEEN, int(steps)))
            return Agreed(mean_loss, is_stopping=stopping > 0)

        return agreed
