"""Copies of a network's weights, which checkpoints hold beside the network's own.

| option | copy | becomes the model |
|---|---|---|
| --average-weights D | the moving average of the parameters, updated after each step | always |
| --keep-best | parameters and buffers of the best evaluation | if that was before the last step |

With both, an evaluation is of the average, and so is the best. Buffers have no average: running
statistics are one. Each rank has the copies of its own part of the network.

Sources: docs.pytorch.org, torch.optim.swa_utils; Polyak and Juditsky, 1992.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainers.checkpointing.sharded_state import local


class WeightCopies:
    """The copies of a run, of a network that is spread over the ranks.

    `decay` is --average-weights. `let_go` is called after each exchange of weights, so that no
    gathered parameter stays.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        decay: float | None,
        keep_best: bool,
        let_go: Callable[[], object] = lambda: None,
    ) -> None:
        parameters: dict[str, Tensor] = dict(network.named_parameters())
        self._all = parameters | dict(network.named_buffers())
        self._decay = decay or 0.0
        self._let_go = let_go
        self._average = _clones(parameters) if decay else {}
        self._best = _clones(self._all) if keep_best else {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the copies themselves by name, for a checkpoint."""
        average = {f"average.{name}": tensor for name, tensor in self._average.items()}
        return average | {f"best.{name}": tensor for name, tensor in self._best.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Update the average after `step` steps. The first steps count less, as is usual."""
        if not self._average:
            return
        decay = min(self._decay, (1 + step) / (10 + step))
        averages = [local(average) for average in self._average.values()]
        get_ema_multi_avg_fn(decay)(averages, [local(self._all[name]) for name in self._average], 0)

    @contextlib.contextmanager
    def averaged(self) -> Generator[None]:
        """Give the network the averages inside the block, if there are any."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def keep(self) -> None:
        """Copy the network's weights: their evaluation is the best so far."""
        _copy(self._all, self._best)

    def restore(self) -> None:
        """Give the network the weights that were kept, and the average, too."""
        _copy(self._best, self._all)
        _copy(self._best, self._average)
        self._let_go()

    def _exchange(self) -> None:
        if self._average:
            held = _clones({name: self._all[name] for name in self._average})
            _copy(self._average, self._all)
            _copy(held, self._average)
            self._let_go()


def _clones(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def _copy(values: dict[str, Tensor], into: dict[str, Tensor]) -> None:
    """Copy this rank's part of the tensors that are in both."""
    for name in values.keys() & into.keys():
        local(into[name]).copy_(local(values[name]))
