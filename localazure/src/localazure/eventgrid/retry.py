"""The result of a delivery attempt: delivered, retried later, or final. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/delivery-and-retry.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Annotated

from pydantic import Field, StrictInt

from localazure import limits
from localazure.configuration_file import ConfigurationModel

# Delays in seconds after the first, second, … attempt; the last delay repeats.
SCHEDULE_SECONDS: tuple[float, ...] = (
    10, 30, 60, 300, 600, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600,
)  # fmt: skip
# "Event Grid adds a small randomization to all retry steps": at most this fraction of the delay.
JITTER = 0.1
ATTEMPT_TIMEOUT_SECONDS = 30.0
DEFAULT_MAX_ATTEMPTS = limits.EVENT_GRID_ATTEMPTS.value
DEFAULT_TIME_TO_LIVE_MINUTES = 1440
MAX_TIME_TO_LIVE_MINUTES = limits.EVENT_GRID_TIME_TO_LIVE.value

# 205 and above are failures for Event Grid, although HTTP calls them successes.
_DELIVERED = range(HTTPStatus.OK, HTTPStatus.NO_CONTENT + 1)
# 401 is final for webhooks only: a function's key may not be in effect yet.
_FINAL: frozenset[int] = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
)
# Statuses with a longer minimum delay than the first steps of the schedule.
_AT_LEAST_SECONDS: dict[int, float] = {
    HTTPStatus.SERVICE_UNAVAILABLE: 30.0,
    HTTPStatus.REQUEST_TIMEOUT: 120.0,
}

_OUTCOMES: dict[int, str] = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.UNAUTHORIZED: "Unauthorized",
    HTTPStatus.FORBIDDEN: "Forbidden",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.REQUEST_TIMEOUT: "TimedOut",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "PayloadTooLarge",
    HTTPStatus.TOO_MANY_REQUESTS: "Busy",
    HTTPStatus.SERVICE_UNAVAILABLE: "Busy",
}


class Verdict(Enum):
    """What an attempt means for its events."""

    DELIVERED = "delivered"
    RETRY = "retry"
    FINAL = "final"
    # The local port is closed. It does not count as an attempt (docs: storage-and-event-grid.md).
    NOT_LISTENING = "notListening"


@dataclass(frozen=True)
class Outcome:
    """The result of one attempt.

    Attributes:
        text: `lastDeliveryOutcome` of a dead-lettered event.
        at_least_seconds: the shortest delay before the next attempt.
    """

    verdict: Verdict
    text: str
    at_least_seconds: float = 0.0


def judge(status: int, *, webhook: bool) -> Outcome:
    """Return the outcome of an attempt with this HTTP status."""
    if status in _DELIVERED:
        return Outcome(Verdict.DELIVERED, "Delivered")
    text = _OUTCOMES.get(status, "GenericError")
    if status in _FINAL or (webhook and status == HTTPStatus.UNAUTHORIZED):
        return Outcome(Verdict.FINAL, text)
    return Outcome(Verdict.RETRY, text, _AT_LEAST_SECONDS.get(status, 0.0))


class RetryPolicy(ConfigurationModel):
    """The `retryPolicy` of a subscription. The limit that is reached first ends the attempts."""

    max_delivery_attempts: Annotated[StrictInt, Field(ge=1, le=DEFAULT_MAX_ATTEMPTS)] = (
        DEFAULT_MAX_ATTEMPTS
    )
    event_time_to_live_in_minutes: Annotated[
        StrictInt, Field(ge=1, le=MAX_TIME_TO_LIVE_MINUTES)
    ] = DEFAULT_TIME_TO_LIVE_MINUTES

    @property
    def time_to_live_seconds(self) -> int:
        """Time to live from the publication of an event."""
        return self.event_time_to_live_in_minutes * 60


@dataclass(frozen=True)
class RetrySchedule:
    """The delays between attempts.

    Attributes:
        delays_seconds: delays after each attempt; the last one repeats.
        scaled: whether the schedule was set for local tests. Then the minimum delays of single
            statuses do not apply.
    """

    delays_seconds: Sequence[float] = SCHEDULE_SECONDS
    scaled: bool = False

    def delay_seconds(self, attempts: int, outcome: Outcome, source: random.Random) -> float:
        """Seconds until the next attempt after `attempts` have been made."""
        base_seconds = self.delays_seconds[min(attempts, len(self.delays_seconds)) - 1]
        if not self.scaled:
            base_seconds = max(base_seconds, outcome.at_least_seconds)
        return base_seconds * (1 + JITTER * source.random())
