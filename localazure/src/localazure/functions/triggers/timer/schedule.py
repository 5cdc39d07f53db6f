"""The due times of timers, and their status across restarts; pure functions without a clock.

Source: the schedule monitor of https://github.com/Azure/azure-webjobs-sdk-extensions
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum
from typing import Final

from localazure.functions.configuration.timespan import parse_timespan
from localazure.functions.triggers.timer.ncrontab import NCrontab

# The last run of a timer that has not run yet: .NET's DateTime.MinValue.
NEVER: Final = datetime.min.replace(tzinfo=UTC)

_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class CronSchedule:
    """An NCRONTAB expression in the local time of a time zone."""

    crontab: NCrontab
    zone: tzinfo = UTC

    def next_after(self, moment: datetime) -> datetime:
        """The first occurrence strictly after a moment; both in UTC.

        A local time that the zone skips in spring fires later by the skipped interval; a local
        time that the zone repeats in autumn fires only the first time.
        """
        wall = moment.astimezone(self.zone).replace(tzinfo=None)
        while True:
            wall = self.crontab.next_after(wall)
            occurrence = wall.replace(tzinfo=self.zone).astimezone(UTC)
            if occurrence > moment:
                return occurrence

    @property
    def is_sub_minute(self) -> bool:
        """Whether the schedule may occur more than once a minute, too often to store its status."""
        return self.crontab.is_sub_minute


@dataclass(frozen=True)
class ConstantSchedule:
    """A period after the last occurrence."""

    period: timedelta

    def next_after(self, moment: datetime) -> datetime:
        """The moment plus the period."""
        return moment + self.period

    @property
    def is_sub_minute(self) -> bool:
        """Whether the period is less than a minute."""
        return self.period < _MINUTE


Schedule = CronSchedule | ConstantSchedule


def parse_schedule(expression: str, zone: tzinfo = UTC) -> Schedule:
    """Parse an NCRONTAB expression, or a period `hh:mm:ss`.

    Raises:
        ValueError: the expression is neither.
    """
    if ":" in expression:
        period = parse_timespan(expression)
        if not period:
            raise ValueError(f"schedule {expression!r}: a period must be above zero")
        return ConstantSchedule(period)
    return CronSchedule(NCrontab.parse(expression), zone)


@dataclass(frozen=True)
class TimerStatus:
    """The stored status of a timer. All times are UTC."""

    last: datetime
    """The time when the timer last fired; `NEVER` before it has fired."""
    next: datetime
    """The next due time."""
    last_updated: datetime
    """The time from which `next` was computed."""


class Startup(Enum):
    """The reason why a timer fires at the start of the host."""

    PAST_DUE = "past due"
    RUN_ON_STARTUP = "run on startup"


def status_at_start(
    remembered: TimerStatus | None, now: datetime, schedule: Schedule, *, run_on_startup: bool
) -> tuple[TimerStatus, Startup | None]:
    """The status of a timer at the start of the host, and the reason to fire at once, if any.

    If the stored `next` does not match the schedule, the schedule has changed: `next` is computed
    again, and the timer does not fire for the old `next`.
    """
    status = remembered
    if status is None:
        status = TimerStatus(NEVER, schedule.next_after(now), now)
    else:
        reckoned_from = status.last if status.last != NEVER else status.last_updated
        expected = schedule.next_after(reckoned_from)
        if status.next != expected:
            if now > expected:
                expected, reckoned_from = schedule.next_after(now), now
            status = TimerStatus(NEVER, expected, reckoned_from)
    if now > status.next:
        return status, Startup.PAST_DUE
    return status, Startup.RUN_ON_STARTUP if run_on_startup else None


def status_after_firing(
    status: TimerStatus, fired_at: datetime, schedule: Schedule, startup: Startup | None
) -> TimerStatus:
    """The status of a timer after it has fired and its function has ended."""
    # A timer that fired slightly early must not fire again for the same occurrence.
    moment = max(fired_at, status.next) if startup is None else fired_at
    return TimerStatus(moment, schedule.next_after(moment), moment)
