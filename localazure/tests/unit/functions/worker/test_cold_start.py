from __future__ import annotations

import pytest

from localazure.functions.configuration.plan import Plan
from localazure.functions.errors import AppLoadError
from localazure.functions.worker.cold_start import IDLE_SECONDS, ColdStart
from localazure.runtime.environment import COLD_START_SECONDS


class Clock:
    """A clock that only the tests advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.cold_start = ColdStart(3.0, now=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_an_app_that_was_idle_is_cold_again() -> None:
    clock = Clock()
    cold_start = clock.cold_start
    await cold_start.begin()
    clock.now += 1
    await cold_start.begin()  # waits for the remaining time
    assert clock.slept == [3.0, 2.0]
    clock.now += 2 * IDLE_SECONDS
    await cold_start.begin()  # not cold: the other invocations still run
    for _ in range(3):
        cold_start.end()
    clock.now += IDLE_SECONDS - 1
    await cold_start.begin()
    cold_start.end()
    assert clock.slept == [3.0, 2.0]
    clock.now += IDLE_SECONDS
    await cold_start.begin()
    assert clock.slept == [3.0, 2.0, 3.0]


@pytest.mark.parametrize("plan", [None, Plan.PREMIUM, Plan.DEDICATED])
def test_only_plans_without_a_warm_instance_start_cold(plan: Plan | None) -> None:
    with pytest.raises(AppLoadError, match="only the plans consumption and flex"):
        ColdStart.of(plan, {COLD_START_SECONDS: "1"})
    assert ColdStart.of(plan, {}) is None


@pytest.mark.parametrize("text", ["soon", "-1", "0", "inf", "nan"])
def test_a_delay_is_a_number_above_zero(text: str) -> None:
    with pytest.raises(AppLoadError, match=f"{COLD_START_SECONDS} is '{text}'"):
        ColdStart.of(Plan.FLEX, {COLD_START_SECONDS: text})
