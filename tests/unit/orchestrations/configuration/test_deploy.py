from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.deploy import ClosedDays, Windows

MINUTE = timedelta(minutes=1)
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
# The clocks of Berlin change on the first and the last of them.
MOMENTS = st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 31)) | st.datetimes(  # noqa: DTZ001 - made aware below
    datetime(2026, 10, 23),  # noqa: DTZ001 - the same
    datetime(2026, 10, 27),  # noqa: DTZ001 - the same
)


@given(
    MOMENTS,
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
    st.lists(st.tuples(st.integers(0, 23), st.integers(0, 6)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(26, 31), st.integers(0, 2)), max_size=2),
)
def test_the_next_opening_is_the_first_minute_that_is_open(
    moment: datetime, zone: str, opened: list[tuple[int, int]], closed: list[tuple[int, int]]
) -> None:
    now = moment.replace(tzinfo=UTC)
    windows = Windows(
        open=[f"* {hour}-{min(hour + 2, 23)} * * {DAYS[day]}" for hour, day in opened],
        time_zone=zone,
        closed=[
            ClosedDays(
                first=date(2026, now.month, day), last=date(2026, now.month, min(day + more, 31))
            )
            for day, more in closed
        ],
    )

    def is_open(minute: datetime) -> bool:
        local = minute.astimezone(ZoneInfo(zone))
        matches = any(
            hour <= local.hour <= hour + 2 and local.isoweekday() % 7 == day for hour, day in opened
        )
        return matches and not any(it.first <= local.date() <= it.last for it in windows.closed)

    minute = now.replace(second=0, microsecond=0)
    while not is_open(minute):
        minute += MINUTE
    assert windows.next_opening(now) == max(minute, now)


def test_windows_that_never_open_are_told() -> None:
    closed = [ClosedDays(first=date(2026, 1, 1), last=date(2029, 1, 1))]
    windows = Windows(open=["* * * * *"], closed=closed)
    assert windows.next_opening(datetime(2026, 11, 28, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open": []}, "at least 1 item"),
        ({"open": ["* 9-15 * *"]}, "has 5 fields, and this has 4"),
        ({"open": ["* 25 * * *"]}, "no cron expression: Bad hour"),
        ({"time_zone": "Berlin"}, "write it as Europe/Berlin"),
        ({"time_zone": "../etc/passwd"}, "write it as Europe/Berlin"),
        ({"closed": [{"first": "2026-12-24", "last": "2026-12-23"}]}, "last is before first"),
    ],
)
def test_a_wrong_window_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Windows.model_validate({"open": ["* * * * *"], **changes})
