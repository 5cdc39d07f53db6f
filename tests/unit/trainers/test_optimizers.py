from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainers.errors import LaunchInvalid
from trainers.optimizers import build_optimizer
from trainers.settings import parse_settings

REQUIRED = ["--output-dir", "o", "--checkpoint-dir", "c"]


def build(*options: str) -> torch.optim.Optimizer:
    settings = parse_settings("", [*REQUIRED, *options])
    return build_optimizer(settings, nn.Linear(2, 2).parameters())


def own(parameters: Any, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=lr, weight_decay=weight_decay)


def no_optimizer(parameters: Any, *, lr: float, weight_decay: float) -> tuple[Any, float, float]:
    return (parameters, lr, weight_decay)


def test_sgd_has_nesterovs_momentum() -> None:
    made = build()
    assert isinstance(made, torch.optim.SGD)
    chosen = {name: made.defaults[name] for name in ("lr", "momentum", "weight_decay", "nesterov")}
    assert chosen == {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "nesterov": True}
    assert build("--momentum", "0").defaults["nesterov"] is False


def test_adamw_takes_rate_and_decay() -> None:
    made = build("--optimizer", "adamw", "--weight-decay", "0.05")
    assert isinstance(made, torch.optim.AdamW)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (1e-3, 0.05)


def test_a_users_own_gets_the_same() -> None:
    made = build("--optimizer", f"{__name__}:own", "--learning-rate", "0.02")
    assert isinstance(made, torch.optim.RMSprop)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (0.02, 1e-2)


@pytest.mark.parametrize(
    ("path", "reason"),
    [(f"{__name__}:no_optimizer", "returned tuple"), ("mine.nothing:here", "cannot be imported")],
)
def test_what_is_no_optimizer_is_refused(path: str, reason: str) -> None:
    with pytest.raises(LaunchInvalid, match=reason):
        build("--optimizer", path)
