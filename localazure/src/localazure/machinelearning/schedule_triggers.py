"""The times of a schedule's trigger. Pure.

A recurrence counts from its start, with calendar rules (RFC 5545): a month without the start's day
is skipped. A cron expression has the five fields of NCRONTAB; day and month are ignored, as on
Azure. Both use the wall clock of the trigger's time zone. A time in the gap of a clock change is
moved later by the length of the gap; a time that a clock change repeats counts once.

https://learn.microsoft.com/azure/machine-learning/how-to-schedule-pipeline-job
https://learn.microsoft.com/azure/machine-learning/reference-yaml-schedule
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Final, Literal, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dateutil import rrule
from tzlocal.windows_tz import win_tz

from localazure.machinelearning.errors import invalid
from localazure.ncrontab import NCrontab

# The numbers are the constants of `dateutil.rrule`; its type stubs declare them as plain int.
_FREQUENCIES: Final[dict[str, tuple[Literal[1, 2, 3, 4, 5], timedelta | None]]] = {
    "minute": (5, timedelta(minutes=1)),
    "hour": (4, timedelta(hours=1)),
    "day": (3, timedelta(days=1)),
    "week": (2, timedelta(weeks=1)),
    "month": (1, None),
}
"""Frequency → number and period; a month has no fixed period."""
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CRON_FIELDS = 5


@dataclass(frozen=True)
class Trigger:
    """The times at which a schedule starts jobs."""

    next_on_wall_clock: Callable[[datetime], datetime | None]
    """Returns the first time strictly after a time, both without a zone."""
    zone: tzinfo
    start: datetime | None
    end: datetime | None

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time strictly after a moment, in UTC; None after the schedule's end."""
        floor = moment
        if self.start is not None:
            floor = max(moment, self.start - timedelta.resolution)
        wall = floor.astimezone(self.zone).replace(tzinfo=None)
        while (later := self.next_on_wall_clock(wall)) is not None:
            wall = later
            at = wall.replace(tzinfo=self.zone).astimezone(UTC)
            if self.end is not None and at > self.end:
                return None
            if at > floor:
                return at
        return None


def parse_trigger(document: dict[str, Any], created_at: datetime) -> Trigger:
    """Parse the trigger of a schedule.

    Args:
        document: the schedule's `trigger`.
        created_at: of the schedule; the start of a recurrence without a start time.

    Raises:
        ArmError: 400, a field is missing or wrong.
    """
    zone = _zone(document.get("timeZone") or "UTC")
    start, end = (_time(document, key, zone) for key in ("startTime", "endTime"))
    match document.get("triggerType"):
        case "Cron":
            times = _cron(document.get("expression"))
        case "Recurrence":
            first = (start or created_at).astimezone(zone).replace(tzinfo=None)
            times = _recurrence(document, first)
        case kind:
            raise invalid(f"triggerType {kind!r} is not covered; use Recurrence or Cron")
    return Trigger(times, zone, start, end)


def _zone(name: str) -> tzinfo:
    """Find a zone by its Windows name, which the SDK sends, or by its IANA name."""
    try:
        return ZoneInfo(win_tz.get(name, name))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise invalid(
            f"timeZone {name!r} is not known; use a name such as 'Pacific Standard Time'"
        ) from error


def _time(document: dict[str, Any], key: str, zone: tzinfo) -> datetime | None:
    text = document.get(key)
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise invalid(f"{key} {text!r} is not a time such as 2022-06-01T00:00:01") from error
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def _cron(expression: Any) -> Callable[[datetime], datetime]:
    fields = str(expression).split()
    if len(fields) != _CRON_FIELDS:
        raise invalid(
            f"expression {expression!r} has {len(fields)} fields; it needs five: "
            "MINUTES HOURS DAYS MONTHS DAYS-OF-WEEK"
        )
    minutes, hours, _, _, weekdays = fields
    try:
        return NCrontab.parse(f"{minutes} {hours} * * {weekdays}").next_after
    except ValueError as error:
        raise invalid(f"expression {expression!r}: {error}") from error


def _recurrence(document: dict[str, Any], first: datetime) -> Callable[[datetime], datetime | None]:
    found = _FREQUENCIES.get(str(document.get("frequency")).lower())
    if found is None:
        raise invalid(
            f"frequency {document.get('frequency')!r} is not one of {', '.join(_FREQUENCIES)}"
        )
    frequency, period = found
    interval = document.get("interval")
    if not isinstance(interval, int) or interval < 1:
        raise invalid(f"interval is {interval!r}; it must be a number from 1")
    pattern: dict[str, Any] = document.get("schedule") or {}
    hours, minutes, days = (
        _numbers(pattern, key, lowest, highest)
        for key, lowest, highest in (("hours", 0, 23), ("minutes", 0, 59), ("monthDays", -31, 31))
    )
    names = [str(day).lower() for day in pattern.get("weekDays") or ()]
    if not set(names) <= {*_WEEKDAYS}:
        raise invalid(f"weekDays {pattern['weekDays']!r}: use {', '.join(_WEEKDAYS)}")
    rule = rrule.rrule(
        frequency,
        dtstart=first,
        interval=interval,
        byhour=hours,
        byminute=minutes,
        bysecond=0 if minutes else None,
        bymonthday=days,
        byweekday=[_WEEKDAYS.index(name) for name in names] or None,
    )

    def next_after(wall: datetime) -> datetime | None:
        moved = rule
        if period is not None and wall > first:
            # A rule iterates over all times since its start, which can be millions.
            passed = (wall - first) // (period * interval)
            moved = rule.replace(dtstart=first + passed * period * interval)
        return moved.after(wall)

    return next_after


def _numbers(pattern: dict[str, Any], key: str, lowest: int, highest: int) -> list[int] | None:
    numbers = pattern.get(key)
    if not numbers:
        return None
    if not isinstance(numbers, list) or not all(
        isinstance(number, int) and lowest <= number <= highest
        for number in cast("list[Any]", numbers)
    ):
        raise invalid(f"{key} is {numbers!r}; it must be numbers from {lowest} to {highest}")
    return cast("list[int]", numbers)
