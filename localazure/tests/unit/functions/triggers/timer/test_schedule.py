from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.triggers.timer.schedule import (
    NEVER,
    CronSchedule,
    Startup,
    TimerStatus,
    parse_schedule,
    status_after_firing,
    status_at_start,
)

HOURLY = parse_schedule("0 0 * * * *")
NOON = datetime(2026, 8, 8, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
FIRED = TimerStatus(NOON, NOON + HOUR, NOON)
NEW = TimerStatus(NEVER, NOON + HOUR, NOON + 10 * MINUTE)
OF_ANOTHER_SCHEDULE = TimerStatus(NOON, NOON + 5 * MINUTE, NOON)


@pytest.mark.parametrize(
    ("remembered", "minutes", "run_on_startup", "status", "startup"),
    [
        (None, 10, False, NEW, None),
        (FIRED, 61, False, FIRED, Startup.PAST_DUE),
        (NEW, 180, False, NEW, Startup.PAST_DUE),
        # `next` is computed again, and the timer is not past due.
        (
            OF_ANOTHER_SCHEDULE,
            150,
            False,
            TimerStatus(NEVER, NOON + 3 * HOUR, NOON + 150 * MINUTE),
            None,
        ),
        (FIRED, 0, True, FIRED, Startup.RUN_ON_STARTUP),
        (FIRED, 120, True, FIRED, Startup.PAST_DUE),
    ],
)
def test_the_status_at_the_start(
    remembered: TimerStatus | None,
    minutes: int,
    run_on_startup: bool,  # noqa: FBT001 - a table
    status: TimerStatus,
    startup: Startup | None,
) -> None:
    now = NOON + minutes * MINUTE
    assert status_at_start(remembered, now, HOURLY, run_on_startup=run_on_startup) == (
        status,
        startup,
    )


def test_many_missed_occurrences_fire_once() -> None:
    late = NOON + 5.5 * HOUR
    assert status_after_firing(FIRED, late, HOURLY, Startup.PAST_DUE).next == NOON + 6 * HOUR


@given(
    expression=st.sampled_from(["0 */7 * * * *", "30 0 3 * * 1-5", "00:13:00", "15 5,35 * * * *"]),
    offset=st.integers(0, 10_000_000),
    late=st.integers(0, 86_400),
)
def test_a_restart_at_any_time_remembers_the_schedule(
    expression: str, offset: int, late: int
) -> None:
    """A restart keeps any stored status, and fires if and only if `next` has passed."""
    schedule = parse_schedule(expression)
    now = NOON + timedelta(seconds=offset)
    status, _ = status_at_start(None, now, schedule, run_on_startup=False)
    for _ in range(3):
        again, startup = status_at_start(
            status, now + timedelta(seconds=late), schedule, run_on_startup=False
        )
        assert again == status
        assert (startup is Startup.PAST_DUE) == (now + timedelta(seconds=late) > status.next)
        now = max(status.next, now)
        status = status_after_firing(status, now, schedule, None)
        assert status.next > now


def test_a_zone_that_skips_an_hour_and_one_that_repeats_it() -> None:
    schedule = parse_schedule("0 30 2 * * *", ZoneInfo("Europe/Berlin"))
    assert isinstance(schedule, CronSchedule)
    # 29 March 2026: 02:30 does not exist; the timer fires at 03:30 summer time.
    spring = schedule.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert spring == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    # 25 October 2026: 02:30 occurs twice; the timer fires the first time.
    autumn = schedule.next_after(datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert autumn == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert schedule.next_after(autumn) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "expected"), [("00:00:30", True), ("00:01:00", False), ("* * * * * *", True)]
)
def test_what_is_too_frequent_to_remember(expression: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert parse_schedule(expression).is_sub_minute is expected


def test_firing_early_does_not_fire_twice() -> None:
    early = FIRED.next - timedelta(milliseconds=3)
    assert status_after_firing(FIRED, early, HOURLY, None).next == NOON + 2 * HOUR
