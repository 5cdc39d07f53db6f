"""Local SGD: ranks step alone, and average weights and momentum every N steps (--average-every).

After which steps they do is a function of the step alone, and the averages are all that a rank goes
on with. So a run that resumes from a regular checkpoint ends in the same bits. Source: Lin et al.,
arXiv 1808.07217; torch.distributed.algorithms.model_averaging, whose averagers count steps
themselves and leave the momentum to each rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from torch import Tensor
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.optim import Optimizer


def average_over_ranks(optimizer: Optimizer) -> None:
    """Average the weights, and their tensors in the optimizer. A collective call."""
    tensors: Any = _tensors(optimizer)  # its type says parameters, it takes any tensors
    average_parameters(tensors, cast("Any", None))  # of all ranks


def _tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """Yield the weights, and their tensors in the optimizer, but not its counts of steps."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            yield weight
            for name, value in optimizer.state.get(weight, {}).items():
                if name != "step" and isinstance(value, Tensor) and value.shape == weight.shape:
                    yield value
