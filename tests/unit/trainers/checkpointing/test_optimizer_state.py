"""A run that resumes from a checkpoint takes the same steps as one that never stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainers.checkpointing import sharded_state
from trainers.errors import LaunchInvalid

LATE = 4  # the step in which the last layer gets its first gradient
NEEDS_MORE = {"LBFGS", "SparseAdam"}  # a closure, and sparse gradients: training has neither


class Network(nn.Module):
    """Two layers, and a third one that takes part in later steps only."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 3, bias=False)
        self.second = nn.Linear(3, 2, bias=False)
        self.late = nn.Linear(3, 2, bias=False)

    def forward(self, inputs: Tensor, step: int) -> Tensor:
        hidden = self.first(inputs).relu()
        output = self.second(hidden)
        return output + self.late(hidden) if step >= LATE else output


class Counting(Optimizer):
    """Keeps Python numbers for each parameter and in its group, and nested state."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__(parameters, {"lr": 0.1, "betas": (0.9, 0.5), "mode": "plain"})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        del closure
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
            group["weight"] = group.get("weight", 0.0) + 1 / group["count"]
            group["betas"] = (group["betas"][0] * 0.99, group["betas"][1])
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["step"] = state.get("step", 0) + 1
                last = state.setdefault("nested", {"sums": [torch.zeros_like(parameter), None]})
                last["sums"][0].add_(parameter.grad)
                rate = group["lr"] * group["weight"] * group["betas"][0] / state["step"]
                parameter.sub_(last["sums"][0], alpha=rate)


Make = Callable[[Iterable[Tensor]], Optimizer]


def of_torch() -> list[Any]:
    """Every optimizer that torch ships."""
    kinds: list[Any] = [getattr(torch.optim, name) for name in dir(torch.optim)]
    return [
        pytest.param(partial(cast("Any", kind), lr=0.05), id=kind.__name__)
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
        if kind.__name__ not in NEEDS_MORE
    ]


def start(make: Make, *, seed: int) -> tuple[Network, Optimizer]:
    torch.manual_seed(seed)
    network = Network()
    return network, make(network.parameters())


def train(network: Network, optimizer: Optimizer, steps: range) -> None:
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        network(torch.randn(8, 4), step).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        *of_torch(),
        pytest.param(partial(torch.optim.SGD, lr=0.1, momentum=0.9), id="SGD with momentum"),
        pytest.param(Counting, id="a user's own"),
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(make: Make, tmp_path: Path) -> None:
    network, optimizer = start(make, seed=1)
    train(network, optimizer, range(LATE - 1))
    sharded_state.write(tmp_path, sharded_state.state_of(network, optimizer), None)
    resumed, resumed_optimizer = start(make, seed=2)

    sharded_state.read(tmp_path, resumed, resumed_optimizer, None)

    for each in ((network, optimizer), (resumed, resumed_optimizer)):
        train(*each, range(LATE - 1, LATE + 3))
    expected = network.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.state_dict().items())


class KeepsAnObject(Counting):
    """Keeps what is neither tensor nor number."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        self.param_groups[0]["history"] = {1, 2}


def test_an_optimizer_whose_state_cannot_be_kept_is_refused_by_name() -> None:
    network, optimizer = start(KeepsAnObject, seed=1)
    train(network, optimizer, range(1))
    with pytest.raises(LaunchInvalid, match=r"KeepsAnObject keeps a set as group\.0\.history"):
        sharded_state.state_of(network, optimizer)


class GrowsItsState(Counting):
    """Has a key from its second step on."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        group = self.param_groups[0]
        if group["count"] > 1:
            group["late"] = 1


def test_a_state_that_a_first_step_does_not_create_is_refused_by_name(tmp_path: Path) -> None:
    network, optimizer = start(GrowsItsState, seed=1)
    train(network, optimizer, range(2))
    sharded_state.write(tmp_path, sharded_state.state_of(network, optimizer), None)
    with pytest.raises(LaunchInvalid, match=r"GrowsItsState cannot resume: group\.0\.late"):
        sharded_state.read(tmp_path, *start(GrowsItsState, seed=2), None)
