from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.unit.trainers.given_settings import settings_of
from trainers.errors import LaunchInvalid
from trainers.optimizers import build_optimizer, learning_rate


def build(*options: str) -> torch.optim.Optimizer:
    return build_optimizer(settings_of(*options), nn.Linear(2, 2).parameters())


def own(parameters: Any, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=lr, weight_decay=weight_decay)


def no_optimizer(parameters: Any, *, lr: float, weight_decay: float) -> tuple[Any, float, float]:
    return (parameters, lr, weight_decay)


def test_sgd_has_nesterovs_momentum() -> None:
    made = build()
    assert (made.defaults["momentum"], made.defaults["nesterov"]) == (0.9, True)
    assert build("--momentum", "0").defaults["nesterov"] is False


@pytest.mark.parametrize(
    ("options", "kind", "rate", "decay"),
    [
        ("", torch.optim.SGD, 0.1, 5e-4),
        ("--optimizer adamw", torch.optim.AdamW, 1e-3, 1e-2),
        ("--optimizer adamw --learning-rate 0.01 --weight-decay 0", torch.optim.AdamW, 0.01, 0),
        (f"--optimizer {__name__}:own", torch.optim.RMSprop, 1e-3, 1e-2),
    ],
)
def test_rate_and_decay_are_the_options_or_the_optimizers_defaults(
    options: str, kind: type[torch.optim.Optimizer], rate: float, decay: float
) -> None:
    made = build(*options.split())
    assert isinstance(made, kind)
    assert (made.defaults["lr"], made.defaults["weight_decay"]) == (rate, decay)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", f"{__name__}:own"])
def test_norms_and_biases_do_not_decay(optimizer: str) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 2))
    options = settings_of("--optimizer", optimizer, "--weight-decay", "0.5")
    groups = build_optimizer(options, network.parameters()).param_groups
    assert [[parameter.ndim for parameter in group["params"]] for group in groups] == [
        [4, 2],
        [1, 1, 1, 1],
    ]
    assert [group["weight_decay"] for group in groups] == [0.5, 0]


@pytest.mark.parametrize(
    ("path", "reason"),
    [(f"{__name__}:no_optimizer", "returned tuple"), ("mine.nothing:here", "cannot be imported")],
)
def test_what_is_no_optimizer_is_refused(path: str, reason: str) -> None:
    with pytest.raises(LaunchInvalid, match=reason):
        build("--optimizer", path)


def rates(steps_per_epoch: int, epochs: int, *options: str, peak: float = 1.0) -> list[float]:
    settings = settings_of("--epochs", str(epochs), "--learning-rate", str(peak), *options)
    return [
        learning_rate(settings, step, steps_per_epoch) for step in range(epochs * steps_per_epoch)
    ]


@given(
    epochs=st.integers(1, 20),
    peak=st.floats(1e-6, 10),
    warm_up=st.none() | st.floats(1e-3, 600),
    steps_per_epoch=st.integers(1, 50),
)
@settings(max_examples=50)
def test_the_rate_rises_to_its_peak_once_and_falls(
    epochs: int, peak: float, warm_up: float | None, steps_per_epoch: int
) -> None:
    options = () if warm_up is None else ("--warm-up-epochs", str(warm_up))
    found = rates(steps_per_epoch, epochs, *options, peak=peak)
    top = found.index(max(found))
    assert max(found) == pytest.approx(peak)
    assert all(rate > 0 for rate in found)
    assert found[: top + 1] == sorted(found[: top + 1])
    assert found[top:] == sorted(found[top:], reverse=True)


def test_the_rate_of_a_hundred_steps() -> None:
    found = rates(5, 20)
    assert found[0] == pytest.approx(0.1)
    assert found[9] == found[10] == pytest.approx(1.0)
    assert found[55] == pytest.approx(0.5)
    assert found[99] < 0.001


def test_a_step_schedule_takes_a_tenth_at_the_end_of_each_epoch_named() -> None:
    decays = ("--schedule", "step", "--decay-epochs", "30,60,80")
    found = rates(10, 90, *decays, "--warm-up-epochs", "5", peak=0.1)
    chosen = [found[step] for step in (48, 49, 299, 300, 599, 600, 799, 800, 899)]
    assert chosen == pytest.approx([0.098, 0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4])


def test_a_constant_schedule_stays_at_its_peak() -> None:
    found = rates(1, 9, "--schedule", "constant", "--warm-up-epochs", "2", peak=0.1)
    assert found == [0.05, *[0.1] * 8]


REFUSED = {
    "LBFGS": "weight_decay",
    "Muon": "2D parameters",
    "Rprop": "weight_decay",
    "SparseAdam": "weight_decay",
}


OF_TORCH = [
    name
    for name in torch.optim.__all__
    if isinstance(getattr(torch.optim, name), type) and name != "Optimizer"
]


@pytest.mark.parametrize("name", OF_TORCH)
def test_every_optimizer_of_torch_is_built_or_refused_by_name(name: str) -> None:
    """tests/unit/trainers/checkpointing has that those built resume to the bit."""
    options = settings_of("--optimizer", f"torch.optim:{name}")
    parameters = [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))]
    if name in REFUSED:
        with pytest.raises(LaunchInvalid, match=f"torch.optim:{name} .*{REFUSED[name]}"):
            build_optimizer(options, parameters)
    else:
        assert type(build_optimizer(options, parameters)).__name__ == name


def sparse_adam(groups: Any, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    del weight_decay
    return torch.optim.SparseAdam([{"params": group["params"]} for group in groups], lr=lr)


def lbfgs(groups: Any, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    del weight_decay
    return torch.optim.LBFGS([each for group in groups for each in group["params"]], lr=lr)


@pytest.mark.parametrize(
    ("name", "needed"), [("sparse_adam", "sparse gradients"), ("lbfgs", "a closure")]
)
def test_an_optimizer_that_needs_more_than_gradients_is_refused(name: str, needed: str) -> None:
    path = f"{__name__}:{name}"
    with pytest.raises(LaunchInvalid, match=f"{name} cannot train here: .*{needed}"):
        build_optimizer(settings_of("--optimizer", path), [nn.Parameter(torch.zeros(2, 2))])
