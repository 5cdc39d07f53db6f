from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.eventgrid.retry import (
    JITTER,
    SCHEDULE_SECONDS,
    Outcome,
    RetrySchedule,
    Verdict,
    judge,
)

GENERIC = Outcome(Verdict.RETRY, "GenericError")


@given(st.integers(1, 1000), st.integers())
def test_schedule_is_the_documented_one_jittered(attempts: int, seed: int) -> None:
    documented_seconds = [10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200]
    assert list(SCHEDULE_SECONDS) == documented_seconds
    base_seconds = documented_seconds[min(attempts, 10) - 1]
    delay_seconds = RetrySchedule().delay_seconds(attempts, GENERIC, random.Random(seed))
    assert base_seconds <= delay_seconds <= base_seconds * (1 + JITTER)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 50), st.integers())
def test_any_schedule_repeats_its_last_step(
    schedule_seconds: list[float], attempts: int, seed: int
) -> None:
    schedule = RetrySchedule(schedule_seconds, scaled=True)
    base_seconds = schedule_seconds[min(attempts, len(schedule_seconds)) - 1]
    busy = Outcome(Verdict.RETRY, "Busy", 30.0)
    assert (
        base_seconds
        <= schedule.delay_seconds(attempts, busy, random.Random(seed))
        <= base_seconds * (1 + JITTER)
    )


@pytest.mark.parametrize("webhook", [True, False])
def test_verdicts(webhook: bool) -> None:  # noqa: FBT001 - pytest gives it by name
    for status in range(200, 600):
        outcome = judge(status, webhook=webhook)
        if 200 <= status <= 204:
            assert outcome.verdict is Verdict.DELIVERED
        elif status in {400, 403, 413} or (status == 401 and webhook):
            assert outcome.verdict is Verdict.FINAL
        else:
            assert outcome.verdict is Verdict.RETRY
        assert outcome.text


def test_busy_endpoints_get_longer_delays() -> None:
    schedule, source = RetrySchedule(), random.Random(1)
    assert schedule.delay_seconds(1, judge(503, webhook=True), source) >= 30
    assert schedule.delay_seconds(1, judge(408, webhook=True), source) >= 120
