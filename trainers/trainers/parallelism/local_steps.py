"""Local SGD: ranks step alone, and average weights and momentum every N steps (--average-every).

Which steps they meet in is a function of the step alone, and the averages are all that a rank goes
on with. So a run that resumes from a regular checkpoint ends in the same bits. Source: Lin et al.,
arXiv 1808.07217; torch.distributed.algorithms.model_averaging, whose averagers count steps
themselves and leave the momentum to each rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.optim import Optimizer


class LocalSteps:
    """The meetings of the ranks.

    Args:
        every: the steps between two meetings; None: the ranks do not step alone.
        is_needed: whether a step has a checkpoint or an evaluation, for which they also meet.
        group: the ranks; None for all.
    """

    def __init__(
        self,
        every: int | None,
        is_needed: Callable[[int], bool],
        network: nn.Module,
        optimizer: Optimizer,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self._every = every
        self._is_needed = is_needed
        self._network = network
        self._optimizer = optimizer
        self._group: Any = group
        self._last = -1

    def end(self, step: int) -> None:
        """Meet, if it is time after this step. A collective call."""
        if self._every is not None and (step % self._every == 0 or self._is_needed(step)):
            self.meet(step)

    def meet(self, step: int) -> None:
        """Average, unless the ranks met after this step. A collective call."""
        if self._every is None or step == self._last:
            return
        average_parameters(self._tensors(), self._group)  # pyright: ignore[reportArgumentType]  # any tensors
        self._last = step

    def _tensors(self) -> Iterator[Tensor]:
        """Yield the weights, and their tensors in the optimizer, but not its counts of steps."""
        for weight in self._network.parameters():
            yield weight
            state = self._optimizer.state.get(weight, {})
            yield from (
                value
                for name, value in state.items()
                if name != "step" and isinstance(value, Tensor) and value.shape == weight.shape
            )
