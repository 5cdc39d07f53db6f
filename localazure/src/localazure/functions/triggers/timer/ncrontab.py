"""NCRONTAB expressions, for timer triggers.

Six fields, `{second} {minute} {hour} {day} {month} {day-of-week}`, or crontab's five (then the
second is 0). A field is `*`, a value, a range `a-b`, a step `x/n`, or a list of these. Months and
weekdays may be names. Unlike in crontab, a day must match both day and day-of-week, and Sunday is
only 0.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-timer#ncrontab-expressions
and the behaviour of the NCrontab library, which the real host uses.
"""

from __future__ import annotations

import calendar
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Final, NamedTuple

_MONTHS: Final = tuple(calendar.month_name[1:])
_WEEKDAYS: Final = (calendar.day_name[6], *calendar.day_name[:6])  # Sunday is 0

# Covers the rarest date, a 29th of February on a given weekday around a year such as 2100 that is
# not a leap year (40 years).
_SEARCH_DAYS: Final = 366 * 41


class _Field(NamedTuple):
    name: str
    lowest: int
    highest: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day-of-week", 0, 6, _WEEKDAYS),
)


@dataclass(frozen=True)
class NCrontab:
    """A parsed expression. Each field is the sorted tuple of its allowed values."""

    expression: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    @classmethod
    def parse(cls, expression: str) -> NCrontab:
        """Parse six fields, or five with second 0.

        Raises:
            ValueError: the message names the field and its allowed values.
        """
        texts = expression.split()
        if len(texts) == len(_FIELDS) - 1:
            texts = ["0", *texts]
        if len(texts) != len(_FIELDS):
            raise ValueError(
                f"schedule {expression!r} has {len(texts)} fields; NCRONTAB has six "
                "(second minute hour day month day-of-week) or five (without the second)"
            )
        try:
            values = [_parse_field(text, field) for text, field in zip(texts, _FIELDS, strict=True)]
        except ValueError as error:
            raise ValueError(f"schedule {expression!r}: {error}") from None
        return cls(expression, *values)

    def next_after(self, moment: datetime) -> datetime:
        """Return the first occurrence strictly after a time, in the time zone of that time.

        Raises:
            ValueError: there is none within 41 years (for example `0 0 0 30 2 *`).
        """
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        for day in self._days_from(start.date()):
            earliest = (
                (start.hour, start.minute, start.second) if day == start.date() else (0, 0, 0)
            )
            if (found := self._first_time(earliest)) is not None:
                return datetime.combine(day, found.replace(fold=start.fold), start.tzinfo)
        raise ValueError(f"schedule {self.expression!r} never occurs")

    @property
    def is_sub_minute(self) -> bool:
        """Whether the schedule occurs more than once in every minute."""
        every = _parse_field
        return len(self.seconds) > 1 and (
            (self.minutes, self.hours, self.days, self.months, self.weekdays)
            == tuple(every("*", field) for field in _FIELDS[1:])
        )

    def _days_from(self, first: date) -> Iterator[date]:
        for offset in range(_SEARCH_DAYS):
            try:
                day = first + timedelta(days=offset)
            except OverflowError:  # the end of the calendar
                return
            if (
                day.month in self.months
                and day.day in self.days
                and day.isoweekday() % 7 in self.weekdays
            ):
                yield day

    def _first_time(self, earliest: tuple[int, int, int]) -> time | None:
        """Return the first allowed time of a day from `earliest` on (hour, minute, second)."""
        hours = [hour for hour in self.hours if hour >= earliest[0]]
        times = itertools.product(hours, self.minutes, self.seconds)
        return next((time(*each) for each in times if each >= earliest), None)


def _parse_field(text: str, field: _Field) -> tuple[int, ...]:
    values: set[int] = set()
    for item in text.split(","):
        body, slash, step_text = item.partition("/")
        if slash and not (step_text.isdecimal() and int(step_text) > 0):
            raise ValueError(f"{field.name} {text!r}: a step is a whole number above 0")
        step = int(step_text) if slash else 1
        if body == "*":
            first, last = field.lowest, field.highest
        elif "-" in body:
            # The library swaps the ends of a descending range.
            first, last = sorted(_parse_value(end, field) for end in body.split("-", 1))
        else:
            first = _parse_value(body, field)
            last = field.highest if slash else first
        values.update(range(first, last + 1, step))
    return tuple(sorted(values))


def _parse_value(text: str, field: _Field) -> int:
    if text.isascii() and text.isdecimal():
        value = int(text)
        if field.lowest <= value <= field.highest:
            return value
    elif text:
        for index, name in enumerate(field.names):
            if name.lower().startswith(text.lower()):
                return field.lowest + index
    names = f" or one of {', '.join(field.names)}" if field.names else ""
    raise ValueError(
        f"{field.name} {text!r} is not a number from {field.lowest} to {field.highest}{names}"
    )
