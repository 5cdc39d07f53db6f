"""A function's retry policy: the number of retries after a failure, and the delays before them.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-error-pages#retry-policies
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from localazure.functions.configuration.timespan import parse_timespan

FIXED_DELAY: Final = "fixed_delay"
EXPONENTIAL_BACKOFF: Final = "exponential_backoff"
_INTERVALS: Final = {
    FIXED_DELAY: ("delay_interval", "delay_interval"),
    EXPONENTIAL_BACKOFF: ("minimum_interval", "maximum_interval"),
}
"""For each strategy, the settings that hold the minimum and the maximum delay."""
UNLIMITED: Final = -1

# The jitter of an exponential delay, as in the WebJobs SDK: a fraction of the delay.
_JITTER: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """A fixed delay (minimum = maximum), or an exponential one from minimum to maximum."""

    max_retry_count: int
    """The value -1 means no limit."""
    minimum_delay: timedelta
    maximum_delay: timedelta
    is_exponential: bool

    @classmethod
    def parse(cls, settings: Mapping[str, Any]) -> RetryPolicy:
        """Read the settings of the SDK's `@app.retry`.

        Raises:
            ValueError: names the setting and its value.
        """
        strategy = str(settings.get("strategy"))
        try:
            count = int(str(settings.get("max_retry_count")))
        except ValueError:
            count = UNLIMITED - 1
        if count < UNLIMITED:
            raise ValueError(
                f"retry: max_retry_count is {settings.get('max_retry_count')!r}, "
                "not a whole number from -1 up"
            )

        def delay(name: str) -> timedelta:
            try:
                return parse_timespan(str(settings.get(name)))
            except ValueError as error:
                raise ValueError(f"retry: {name}: {error}") from None

        if strategy not in _INTERVALS:
            raise ValueError(f"retry: strategy is {strategy!r}, not {' or '.join(_INTERVALS)}")
        minimum, maximum = (delay(name) for name in _INTERVALS[strategy])
        return cls(
            max_retry_count=count,
            minimum_delay=minimum,
            maximum_delay=maximum,
            is_exponential=strategy == EXPONENTIAL_BACKOFF,
        )

    def delay_before(self, retry: int, chance: random.Random) -> timedelta | None:
        """The delay before a retry, given its number (from 1); None if there is no retry."""
        if self.max_retry_count != UNLIMITED and retry > self.max_retry_count:
            return None
        if not self.is_exponential:
            return self.minimum_delay
        try:
            doubled = self.minimum_delay * 2 ** (retry - 1)
        except OverflowError:
            return self.maximum_delay
        jittered = doubled * (1 + chance.uniform(-_JITTER, _JITTER))
        return min(max(jittered, self.minimum_delay), self.maximum_delay)
