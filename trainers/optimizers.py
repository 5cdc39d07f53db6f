"""The optimizer of a run: built in, or a user's own by its dotted path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer

from trainers.arguments import is_dotted
from trainers.errors import LaunchInvalid
from trainers.plugins import resolve
from trainers.settings import SGD, Settings


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """Which of torch's implementations of an update fit the parameters; None: torch chooses."""

    foreach: bool | None
    fused: bool | None


def build_optimizer(
    settings: Settings, parameters: Iterable[nn.Parameter], kernels: Kernels
) -> Optimizer:
    """The optimizer that `--optimizer` names, with the rate, decay and momentum of the options.

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
            lr=rate,
            momentum=momentum,
            weight_decay=decay,
            nesterov=momentum > 0,
            foreach=kernels.foreach,
            fused=kernels.fused,
        )
    return torch.optim.AdamW(
        parameters,
        lr=rate,
        weight_decay=decay,
        foreach=kernels.foreach,
        fused=kernels.fused,
    )
