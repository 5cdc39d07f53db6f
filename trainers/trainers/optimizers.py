"""The optimizer of a run: built in, or a user's own by its dotted path."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from trainers.arguments import is_dotted
from trainers.errors import LaunchInvalid
from trainers.plugins import resolve
from trainers.settings import SGD, Settings


def build_optimizer(
    settings: Settings,
    parameters: Iterable[nn.Parameter],
    *,
    foreach: bool | None = None,
    fused: bool | None = None,
) -> Optimizer:
    """The optimizer that `--optimizer` names, with the rate, decay and momentum of the options.

    Args:
        settings: of the run.
        parameters: to train.
        foreach: one of torch's kernels for an update; None: torch chooses.
        fused: the same.

    Raises:
        LaunchInvalid: the dotted path cannot be imported, or returns no optimizer.

    Source: SGD with Nesterov's momentum as in torch.optim.SGD; AdamW, arXiv 1711.05101.
    """
    rate, decay = settings.peak_learning_rate, settings.chosen_weight_decay
    if is_dotted(settings.optimizer):
        made = resolve(settings.optimizer)(parameters, lr=rate, weight_decay=decay)
        if not isinstance(made, Optimizer):
            raise LaunchInvalid(
                f"{settings.optimizer} returned {type(made).__name__}, not a torch.optim.Optimizer"
            )
        return made
    if settings.optimizer == SGD:
        momentum = settings.chosen_momentum
        return torch.optim.SGD(
            parameters,
            rate,
            momentum,
            weight_decay=decay,
            nesterov=momentum > 0,
            foreach=foreach,
            fused=fused,
        )
    return torch.optim.AdamW(parameters, rate, weight_decay=decay, foreach=foreach, fused=fused)
