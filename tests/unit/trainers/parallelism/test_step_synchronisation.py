from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainers.parallelism.launch import Launch
from trainers.parallelism.step_synchronisation import (
    MOST_STEPS_BETWEEN,
    StepStatus,
    StepSynchronisation,
)
from trainers.parallelism.world import World


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def synchronise(
    synchronisation: StepSynchronisation, step: int, *, loss: float = 1.0, stop: bool = False
) -> StepStatus:
    return synchronisation.begin(step, torch.tensor(loss), stop=stop)()


@pytest.mark.parametrize(
    ("seconds_per_step", "steps", "expected"),
    [
        (0.2, 5, [1, 2, 3, 4, 5]),
        # Until the first time is known, a step is assumed to take a tenth of a second.
        (0.01, 40, [1, 2, 12, 22, 32]),
        (
            0.0,
            2 + 2 * MOST_STEPS_BETWEEN,
            [1, *range(2, 3 + 2 * MOST_STEPS_BETWEEN, MOST_STEPS_BETWEEN)],
        ),
    ],
    ids=["long", "short", "no time"],
)
def test_ranks_agree_ten_times_a_second_at_most(
    seconds_per_step: float, steps: int, expected: list[int]
) -> None:
    clock = Clock()
    synchronisation = StepSynchronisation(World.join(Launch(), timeout_seconds=1), clock=clock)
    found: list[int] = []
    for step in range(1, steps + 1):
        clock.now += seconds_per_step
        if synchronisation.is_due(step):
            synchronise(synchronisation, step)
            found.append(step)
    assert found == expected


@pytest.mark.parametrize("stop", [False, True])
def test_a_rank_alone_agrees_with_itself(*, stop: bool) -> None:
    synchronisation = StepSynchronisation(World.join(Launch(), timeout_seconds=1), clock=Clock())
    assert synchronise(synchronisation, 1, loss=0.25, stop=stop) == StepStatus(
        0.25, is_stopping=stop
    )


def test_a_loss_that_is_not_finite_is_handed_on() -> None:
    synchronisation = StepSynchronisation(World.join(Launch(), timeout_seconds=1), clock=Clock())
    assert math.isnan(synchronise(synchronisation, 1, loss=math.nan).mean_loss)
    assert synchronisation.is_due(2)


class LocalRanks:
    """Ranks that add up as a collective does: a rank that asks for the sum waits for all."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[torch.Tensor] = []

    def sum_later(self, values: torch.Tensor) -> Callable[[], torch.Tensor]:
        if len(self._parts) == self.size:
            self._parts = []
        self._parts.append(values)

        def result() -> torch.Tensor:
            assert len(self._parts) == self.size, "a rank waits for one that does not agree now"
            return torch.stack(self._parts).sum(dim=0)

        return result


@given(
    seconds=st.lists(st.lists(st.floats(0, 5), min_size=3, max_size=3), max_size=60),
    told_every=st.integers(1, 50),
    resumed_from=st.integers(0, 1000),
)
def test_ranks_of_any_speed_agree_at_the_same_steps_on_the_same(
    seconds: list[list[float]], told_every: int, resumed_from: int
) -> None:
    clocks = [Clock(), Clock(), Clock()]
    world = LocalRanks(3)
    ranks = [StepSynchronisation(cast("World", world), clock=clock) for clock in clocks]
    for step, durations in enumerate(seconds, start=resumed_from + 1):
        for clock, duration in zip(clocks, durations, strict=True):
            clock.now += duration
        due = {rank.is_due(step) or step % told_every == 0 for rank in ranks}
        assert len(due) == 1, "some ranks would wait for others for ever"
        if not due.pop():
            continue
        losses = [torch.tensor(float(step + number)) for number in range(3)]
        begun = [
            rank.begin(step, loss, stop=number == step % 4)
            for number, (rank, loss) in enumerate(zip(ranks, losses, strict=True))
        ]
        agreed = [result() for result in begun]
        assert agreed[0] == agreed[1] == agreed[2]
        assert agreed[0].mean_loss == 3 * step + 3
        assert agreed[0].is_stopping == (step % 4 < 3)
