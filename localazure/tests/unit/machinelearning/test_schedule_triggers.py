"""Times of schedules, from the examples in Azure's documentation and from the calendar."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.schedule_triggers import Trigger, parse_trigger

CREATED = datetime(2026, 8, 7, 10, 2, 30, tzinfo=UTC)  # a Friday


def cron(expression: str, **fields: Any) -> dict[str, Any]:
    return {"triggerType": "Cron", "expression": expression, **fields}


def recurrence(frequency: str, interval: int = 1, **fields: Any) -> dict[str, Any]:
    empty = {"hours": [], "minutes": []}  # the SDK sends this without a pattern
    return {
        "triggerType": "Recurrence",
        "frequency": frequency,
        "interval": interval,
        "schedule": empty,
        **fields,
    }


def times(trigger: Trigger, count: int, since: datetime = CREATED) -> list[str]:
    found: list[str] = []
    at: datetime | None = since
    while len(found) < count and (at := trigger.next_after(at)) is not None:
        found.append(at.strftime("%m-%dT%H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        # Every Monday at 16:15; day and month are ignored.
        (cron("15 16 * * 1"), ["08-10T16:15:00", "08-17T16:15:00"]),
        (cron("15 16 1 1 1"), ["08-10T16:15:00", "08-17T16:15:00"]),
        (cron("0 * * * *", startTime="2026-08-07T12:00:00"), ["08-07T12:00:00", "08-07T13:00:00"]),
        (cron("0 * * * *", endTime="2026-08-07T11:00:00"), ["08-07T11:00:00"]),
        # A recurrence counts from its start time, or else from its creation.
        (recurrence("minute", 5), ["08-07T10:07:30", "08-07T10:12:30"]),
        (recurrence("Day", startTime="2022-07-10T10:00:00Z"), ["08-08T10:00:00", "08-09T10:00:00"]),
        (
            recurrence(
                "hour", 7, startTime="2022-07-10 10:00:00", timeZone="Pacific Standard Time"
            ),
            ["08-07T16:00:00", "08-07T23:00:00"],
        ),
        (
            recurrence("day", schedule={"hours": [4, 11], "minutes": [0, 30]}),
            ["08-07T11:00:00", "08-07T11:30:00", "08-08T04:00:00"],
        ),
        (
            recurrence(
                "week", 2, schedule={"hours": [9], "minutes": [0], "weekDays": ["Friday", "monday"]}
            ),
            ["08-17T09:00:00", "08-21T09:00:00", "08-31T09:00:00"],
        ),
        # A month without the day is skipped.
        (
            recurrence("month", schedule={"hours": [0], "minutes": [0], "monthDays": [31]}),
            ["08-31T00:00:00", "10-31T00:00:00"],
        ),
        # Berlin has no 2:30 on 28 March 2027: clocks change.
        (
            cron("30 2 * * *", startTime="2027-03-27T00:00:00", timeZone="W. Europe Standard Time"),
            ["03-27T01:30:00", "03-28T01:30:00", "03-29T00:30:00"],
        ),
    ],
)
def test_the_times_of_a_trigger(document: dict[str, Any], expected: list[str]) -> None:
    assert times(parse_trigger(document, CREATED), len(expected)) == expected


@given(
    frequency=st.sampled_from(["minute", "hour", "day", "week", "month"]),
    interval=st.integers(1, 100),
    since=st.datetimes(datetime(2022, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - bounds are naive
)
def test_the_next_time_does_not_depend_on_when_it_is_computed(
    frequency: str, interval: int, since: datetime
) -> None:
    trigger = parse_trigger(
        recurrence(frequency, interval, startTime="2022-01-01T08:00:00"), CREATED
    )
    asked = [since]
    for _ in range(4):
        at = trigger.next_after(asked[-1])
        assert at is not None
        asked.append(at)
    for earlier, later in pairwise(asked):
        assert earlier < later
        assert trigger.next_after(earlier + (later - earlier) / 2) == later


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"triggerType": "Event"}, "triggerType 'Event' is not covered"),
        (cron("0 0 * * * *"), "has 6 fields"),
        (cron("61 * * * *"), "minute '61'"),
        (cron("* * * * *", timeZone="Mars"), "timeZone 'Mars'"),
        (cron("* * * * *", startTime="soon"), "startTime 'soon'"),
        (recurrence("year"), "frequency 'year'"),
        (recurrence("day", 0), "interval is 0"),
        (recurrence("day", schedule={"hours": [24]}), "hours is"),
        (recurrence("week", schedule={"weekDays": ["Foo"]}), "weekDays"),
    ],
)
def test_what_is_wrong_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ArmError) as caught:
        parse_trigger(document, CREATED)
    assert message in caught.value.message
    assert caught.value.status == 400
