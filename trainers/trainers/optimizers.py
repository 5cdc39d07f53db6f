"""The optimizer of a run, and its learning rate.

The rate is a pure function of the step, so that checkpoints do not contain it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from trainers.arguments import is_dotted
from trainers.errors import LaunchInvalid
from trainers.plugins import make
from trainers.settings import SGD, Settings

# Without warm-up, large batches diverge or stall early (arXiv 1706.02677, section 2.2).
_WARM_UP_PART = 0.1  # the fraction of the run's steps
_DECAY = 0.1  # the factor of a step schedule: arXiv 1512.03385, section 3.4


def build_optimizer(
    settings: Settings,
    parameters: Iterable[nn.Parameter],
    *,
    foreach: bool | None = None,
    fused: bool | None = None,
) -> Optimizer:
    """Build the optimizer of `--optimizer`, with the rate, decay and momentum of the options.

    Norms, biases and other parameters of one dimension do not decay: Goyal et al., arXiv
    1706.02677, section 5.1, and He et al., arXiv 1812.01187, section 3.1. They are the second group
    of parameters, which every optimizer has, so that checkpoints of all ranks have the same names.

    `foreach` and `fused` select torch's kernels for an update; None: torch chooses.

    Raises:
        LaunchInvalid: the dotted path cannot be imported, or returns no optimizer, or one that does
            not take such parameters or needs more than gradients.

    Source: SGD with Nesterov's momentum as in torch.optim.SGD; AdamW, arXiv 1711.05101.
    """
    rate, decay = settings.peak_learning_rate, settings.chosen_weight_decay
    groups: list[dict[str, Any]] = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for parameter in parameters:
        groups[parameter.ndim <= 1]["params"].append(parameter)
    if is_dotted(settings.optimizer):
        return _own(settings.optimizer, groups, lr=rate, weight_decay=decay)
    if settings.optimizer != SGD:
        return torch.optim.AdamW(groups, rate, weight_decay=decay, foreach=foreach, fused=fused)
    return torch.optim.SGD(
        groups,
        rate,
        settings.momentum,
        weight_decay=decay,
        nesterov=settings.momentum > 0,
        foreach=foreach,
        fused=fused,
    )


def _own(path: str, groups: list[dict[str, Any]], **further: float) -> Optimizer:
    try:
        optimizer = make(path, Optimizer, groups, **further)
        if (
            inspect.signature(optimizer.step).parameters["closure"].default
            is inspect.Parameter.empty
        ):
            raise ValueError("its step needs a closure")  # noqa: TRY301  # one exit
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise ValueError("it needs sparse gradients")  # noqa: TRY301, TRY004  # the same
    except (TypeError, ValueError) as error:
        raise LaunchInvalid(
            f"--optimizer {path} cannot train here: {error}; name one that takes two groups of "
            "parameters, lr and weight_decay, or a factory of yours that makes it of them"
        ) from error
    return optimizer


def learning_rate(settings: Settings, step: int, steps_per_epoch: int) -> float:
    """Return the rate of a step, which counts from 0.

    After a linear warm-up, by default a tenth of the run, the rate follows half a cosine down to 0,
    decays in steps, or stays at the peak, as `--schedule` says.

    Source: arXiv 1608.03983 (cosine), arXiv 1706.02677 (warm-up, steps).
    """
    steps, peak = settings.epochs * steps_per_epoch, settings.peak_learning_rate
    epochs = settings.warm_up_epochs
    wanted = steps * _WARM_UP_PART if epochs is None else epochs * steps_per_epoch
    warm_up = max(1, min(steps, round(wanted)))
    if step < warm_up:
        return peak * (step + 1) / warm_up
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "step":
        ended = [step >= round(epoch * steps_per_epoch) for epoch in settings.decay_epochs]
        return peak * _DECAY ** sum(ended)
    progress = (step - warm_up) / max(1, steps - warm_up)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
