from __future__ import annotations

import math

import pytest
import torch

from trainers.parallelism.agreement import MOST_STEPS_BETWEEN, Agreed, Agreement
from trainers.parallelism.launch import Launch
from trainers.parallelism.world import World


class Clock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def agree(agreement: Agreement, step: int, *, loss: float = 1.0, stop: bool = False) -> Agreed:
    return agreement.begin(step, torch.tensor(loss), stop=stop)()


def agreed_steps(seconds_per_step: float, steps: int) -> list[int]:
    clock = Clock()
    agreement = Agreement(World.join(Launch(), timeout_seconds=1), clock=clock)
    found: list[int] = []
    for step in range(1, steps + 1):
        clock.now += seconds_per_step
        if agreement.is_due(step):
            agree(agreement, step)
            found.append(step)
    return found


def test_long_steps_are_agreed_on_one_by_one() -> None:
    assert agreed_steps(0.2, 5) == [1, 2, 3, 4, 5]


def test_short_steps_are_agreed_on_ten_times_a_second() -> None:
    # Ten a second is what is assumed before the first time is known.
    assert agreed_steps(0.01, 40) == [1, 2, 12, 22, 32]


def test_however_short_they_are_not_many_steps_pass() -> None:
    assert agreed_steps(0.0, 2 + 2 * MOST_STEPS_BETWEEN) == [
        1,
        2,
        2 + MOST_STEPS_BETWEEN,
        2 + 2 * MOST_STEPS_BETWEEN,
    ]


@pytest.mark.parametrize("stop", [False, True])
def test_a_rank_alone_agrees_with_itself(*, stop: bool) -> None:
    agreement = Agreement(World.join(Launch(), timeout_seconds=1), clock=Clock())
    assert agree(agreement, 1, loss=0.25, stop=stop) == Agreed(0.25, is_stopping=stop)


def test_a_loss_that_is_not_finite_is_handed_on() -> None:
    agreement = Agreement(World.join(Launch(), timeout_seconds=1), clock=Clock())
    assert math.isnan(agree(agreement, 1, loss=math.nan).mean_loss)
    assert agreement.is_due(2)
