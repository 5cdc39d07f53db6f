from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.triggers.timer.ncrontab import NCrontab


@pytest.mark.parametrize(
    ("expression", "now", "expected"),
    [
        # The examples of the documentation of timer triggers.
        ("0 */5 * * * *", "2026-08-08T10:02:00", "2026-08-08T10:05:00"),
        ("0 0 * * * *", "2026-08-08T10:00:00", "2026-08-08T11:00:00"),
        ("0 0 */2 * * *", "2026-08-08T10:00:00", "2026-08-08T12:00:00"),
        ("0 0 9-17 * * *", "2026-08-08T17:30:00", "2026-08-09T09:00:00"),
        ("0 30 9 * * *", "2026-12-31T10:00:00", "2027-01-01T09:30:00"),
        ("0 30 9 * * 1-5", "2026-08-07T10:00:00", "2026-08-10T09:30:00"),
        ("0 30 9 * Jan Mon", "2026-08-07T10:00:00", "2027-01-04T09:30:00"),
        # Five fields; names in full, in any case; a value with a step runs to the end.
        ("*/5 * * * *", "2026-08-08T10:02:03", "2026-08-08T10:05:00"),
        ("0 0 0 * january SUNDAY", "2026-08-07T10:00:00", "2027-01-03T00:00:00"),
        ("0 50/3 * * * *", "2026-08-08T10:57:00", "2026-08-08T10:59:00"),
        ("1,2,5-7 * * * * *", "2026-08-08T10:00:02.5", "2026-08-08T10:00:05"),
        # The ends of a descending range are swapped; day and weekday must both match.
        ("0 0 17-9 * * *", "2026-08-08T17:30:00", "2026-08-09T09:00:00"),
        ("0 0 0 13 * 5", "2026-08-08T00:00:00", "2026-11-13T00:00:00"),
        # Rare dates.
        ("0 0 0 29 2 *", "2026-08-08T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 0 31 * *", "2026-08-31T00:00:00", "2026-10-31T00:00:00"),
    ],
)
def test_next_occurrence(expression: str, now: str, expected: str) -> None:
    found = NCrontab.parse(expression).next_after(datetime.fromisoformat(now))
    assert found == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("60 * * * * *", "second '60' is not a number from 0 to 59"),
        ("0 0 24 * * *", "hour '24' is not a number from 0 to 23"),
        ("0 0 0 0 * *", "day '0' is not a number from 1 to 31"),
        ("0 0 0 * Foo *", "month 'Foo' is not a number from 1 to 12 or one of January"),
        ("0 0 0 * * 7", "day-of-week '7' is not a number from 0 to 6"),
        ("*/0 * * * * *", "a step is a whole number above 0"),
        ("1, * * * * *", "second '' is not"),
        ("1-2-3 * * * * *", "second '2-3' is not"),
    ],
)
def test_what_is_wrong_is_named(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match="schedule") as caught:
        NCrontab.parse(expression)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/10 * * * * *", True),
        ("0 * * * * *", False),
        ("*/10 0 * * * *", False),
        ("* * * * *", False),
    ],
)
def test_sub_minute_schedules(expression: str, expected: bool) -> None:  # noqa: FBT001 - a table
    assert NCrontab.parse(expression).is_sub_minute is expected


def _field(lowest: int, highest: int) -> st.SearchStrategy[str]:
    value = st.integers(lowest, highest)
    step = st.integers(1, highest)
    item = st.one_of(
        st.just("*"),
        value.map(str),
        st.tuples(value, value).map(lambda ends: f"{min(ends)}-{max(ends)}"),
        step.map(lambda n: f"*/{n}"),
        st.tuples(value, step).map(lambda pair: f"{pair[0]}/{pair[1]}"),
    )
    return st.lists(item, min_size=1, max_size=3).map(",".join)


def _allows(text: str, value: int, highest: int) -> bool:
    """Check whether a field allows a value, independently of the parser."""
    for item in text.split(","):
        body, _, step = item.partition("/")
        if body == "*":
            first, last = (1 if highest in {31, 12} else 0), highest
        elif "-" in body:
            first, last = map(int, body.split("-"))
        else:
            first = int(body)
            last = highest if step else first
        if first <= value <= last and (value - first) % int(step or 1) == 0:
            return True
    return False


@given(
    texts=st.tuples(_field(0, 59), _field(0, 59), _field(0, 23)),
    weekday=_field(0, 6),
    now=st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2060, 1, 1)),  # noqa: DTZ001 - a wall clock
)
def test_it_is_the_first_moment_that_every_field_allows(
    texts: tuple[str, str, str], weekday: str, now: datetime
) -> None:
    second, minute, hour = texts
    found = NCrontab.parse(f"{second} {minute} {hour} * * {weekday}").next_after(now)

    def fits(moment: datetime) -> bool:
        return (
            _allows(second, moment.second, 59)
            and _allows(minute, moment.minute, 59)
            and _allows(hour, moment.hour, 23)
            and _allows(weekday, moment.isoweekday() % 7, 6)
        )

    assert found > now
    assert fits(found)
    # No earlier time fits: no second of the minute before, and no minute of that day.
    earlier = found - timedelta(seconds=1)
    for _ in range(60):
        assert earlier <= now or not fits(earlier)
        earlier -= timedelta(seconds=1)
