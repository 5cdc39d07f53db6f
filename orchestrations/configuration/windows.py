"""The section `windows` of `deploy`: when traffic may move to a new model."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, model_validator

from orchestrations.configuration.section import Section

SEARCHED = timedelta(days=400)
_MINUTE = timedelta(minutes=1)
_CRON_FIELDS = 5
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)


def _is_cron(expression: str) -> str:
    """A cron expression; five fields, as crontab(5) has them.

    Raises:
        ValueError: it is none.
    """
    fields = len(expression.split())
    if fields != _CRON_FIELDS:
        raise ValueError(f"a cron expression has {_CRON_FIELDS} fields, and this has {fields}")
    try:
        CronSim(expression, _ANY_DAY)
    except CronSimError as error:
        raise ValueError(f"it is no cron expression: {error}") from None
    return expression


def _is_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            "it is not in the IANA time zone database; write it as Europe/Berlin"
        ) from None
    return name


class ClosedDays(Section):
    """Days on which no traffic moves, in the time zone of the windows."""

    first: date
    """The first of the days."""
    last: date
    """The last of them; the same for one day."""

    @model_validator(mode="after")
    def _in_order(self) -> ClosedDays:
        if self.last < self.first:
            raise ValueError("last is before first")
        return self


class Windows(Section):
    """When traffic may move to a new model. Traffic may move back at any time."""

    open: list[Annotated[str, AfterValidator(_is_cron)]] = Field(min_length=1, max_length=20)
    """Cron expressions: traffic may move in each minute that one of them matches, such as
    `* 9-15 * * MON-THU` from 9:00 to 15:59."""
    time_zone: Annotated[str, AfterValidator(_is_time_zone)] = "UTC"
    """Of the expressions and the closed days, by its name in the IANA database."""
    closed: list[ClosedDays] = Field(default=[], max_length=100)
    """Exceptions: no traffic moves on these days."""

    def next_opening(self, now: datetime) -> datetime | None:
        """The first minute, in UTC, in which traffic may move; `now` if that is its minute.

        None: there is none within 400 days. The answer depends on the machine's time zone
        database: orchestrators leave it to an activity.
        """
        openings = (self._next(expression, now) for expression in self.open)
        found = min((each for each in openings if each is not None), default=None)
        return None if found is None else max(found, now)

    def _next(self, expression: str, now: datetime) -> datetime | None:
        zone = ZoneInfo(self.time_zone)
        this_minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        after = (this_minute - _MINUTE).astimezone(zone)
        while (found := next(CronSim(expression, after), None)) is not None:
            if found - now > SEARCHED:
                return None
            closed = [it.last for it in self.closed if it.first <= found.date() <= it.last]
            if not closed:
                return found.astimezone(UTC)
            following = max(closed) + timedelta(days=1)
            midnight = datetime(following.year, following.month, following.day, tzinfo=zone)
            after = (midnight.astimezone(UTC) - _MINUTE).astimezone(zone)
        return None
