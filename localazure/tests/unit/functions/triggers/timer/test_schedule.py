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
    after_firing,
    at_start,
    parse_schedule,
)

HOURLY = parse_schedule("0 0 * * * *")
NOON = datetime(2026, 8, 8, 12, 0, tzinfo=UTC)


def start(
    remembered: TimerStatus | None, now: datetime, *, run_on_startup: bool = False
) -> tuple[TimerStatus, Startup | None]:
    return at_start(remembered, now, HOURLY, run_on_startup=run_on_startup)


def test_a_new_timer_waits_for_its_first_occurrence() -> None:
    now = NOON + timedelta(minutes=10)
    status, startup = start(None, now)
    assert status == TimerStatus(NEVER, NOON + timedelta(hours=1), now)
    assert startup is None


def test_a_missed_occurrence_is_past_due() -> None:
    status = TimerStatus(NOON, NOON + timedelta(hours=1), NOON)
    assert start(status, NOON + timedelta(hours=1, seconds=1)) == (status, Startup.PAST_DUE)


def test_one_missed_before_the_first_firing_is_past_due_too() -> None:
    status, _ = start(None, NOON + timedelta(minutes=10))
    _, startup = start(status, NOON + timedelta(hours=3))
    assert startup is Startup.PAST_DUE


def test_another_schedule_is_reckoned_anew_and_not_past_due() -> None:
    status = TimerStatus(NOON, NOON + timedelta(minutes=5), NOON)
    now = NOON + timedelta(hours=2, minutes=30)
    anew, startup = start(status, now)
    assert anew == TimerStatus(NEVER, NOON + timedelta(hours=3), now)
    assert startup is None


def test_run_on_startup_gives_way_to_past_due() -> None:
    status = TimerStatus(NOON, NOON + timedelta(hours=1), NOON)
    assert start(status, NOON, run_on_startup=True)[1] is Startup.RUN_ON_STARTUP
    late = NOON + timedelta(hours=2)
    assert start(status, late, run_on_startup=True)[1] is Startup.PAST_DUE


def test_firing_early_does_not_fire_twice() -> None:
    status = TimerStatus(NOON, NOON + timedelta(hours=1), NOON)
    early = status.next - timedelta(milliseconds=3)
    assert after_firing(status, early, HOURLY, None).next == NOON + timedelta(hours=2)


def test_many_missed_occurrences_fire_once() -> None:
    status = TimerStatus(NOON, NOON + timedelta(hours=1), NOON)
    late = NOON + timedelta(hours=5, minutes=30)
    assert after_firing(status, late, HOURLY, Startup.PAST_DUE).next == NOON + timedelta(hours=6)


@given(
    expression=st.sampled_from(["0 */7 * * * *", "30 0 3 * * 1-5", "00:13:00", "15 5,35 * * * *"]),
    offset=st.integers(0, 10_000_000),
    late=st.integers(0, 86_400),
)
def test_a_restart_at_any_time_remembers_the_schedule(
    expression: str, offset: int, late: int
) -> None:
    """Any remembered state is recognised: a restart fires if, and only if, `next` has passed."""
    schedule = parse_schedule(expression)
    now = NOON + timedelta(seconds=offset)
    status, _ = at_start(None, now, schedule, run_on_startup=False)
    for _ in range(3):
        again, startup = at_start(
            status, now + timedelta(seconds=late), schedule, run_on_startup=False
        )
        assert again == status
        assert (startup is Startup.PAST_DUE) == (now + timedelta(seconds=late) > status.next)
        now = max(status.next, now)
        status = after_firing(status, now, schedule, None)
        assert status.next > now


def test_a_zone_that_skips_an_hour_and_one_that_repeats_it() -> None:
    schedule = parse_schedule("0 30 2 * * *", ZoneInfo("Europe/Berlin"))
    assert isinstance(schedule, CronSchedule)
    # 29 March 2026: 02:30 does not exist, it is 03:30 summer time.
    spring = schedule.next_after(datetime(2026, 3, 28, 12, tzinfo=UTC))
    assert spring == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
    # 25 October 2026: 02:30 comes twice, the first counts.
    autumn = schedule.next_after(datetime(2026, 10, 24, 12, tzinfo=UTC))
    assert autumn == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert schedule.next_after(autumn) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="above zero"):
        parse_schedule("00:00:00")


@pytest.mark.parametrize(
    ("expression", "expected"), [("00:00:30", True), ("00:01:00", False), ("* * * * * *", True)]
)
def test_what_is_too_frequent_to_remember(expression: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert parse_schedule(expression).is_sub_minute is expected
