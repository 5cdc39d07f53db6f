"""Cold starts as a delay: the first invocations after a time without any wait for so long.

On the Consumption and Flex Consumption plans an app that is not used has no instance. It is given
up after "roughly 20 minutes" without an invocation; Microsoft names no figure for how long the next
one then takes, since it depends on the app. So the delay is the user's to choose.

Source: https://azure.microsoft.com/blog/understanding-serverless-cold-start/
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Self

from localazure.functions import logs
from localazure.functions.configuration.app_settings import number_above_zero
from localazure.functions.configuration.plan import Plan
from localazure.functions.errors import AppLoadError
from localazure.runtime.environment import COLD_START_SECONDS

_LOG = logging.getLogger(logs.HOST_LOGGER)

IDLE_SECONDS: Final = 20 * 60.0


class ColdStart:
    """Delays invocations of an app that was idle, and at first.

    Args:
        delay_seconds: from the first invocation on; those that come meanwhile wait for the rest.
        now: seconds of a clock that only goes forward.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        delay_seconds: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._delay_seconds = delay_seconds
        self._now = now
        self._sleep = sleep
        self._running = 0
        self._last_used = -math.inf
        self._warm_at = -math.inf

    @classmethod
    def of(cls, plan: Plan | None, settings: Mapping[str, str]) -> Self | None:
        """As the app settings want it; None for no delay.

        Raises:
            AppLoadError: the setting is not a number, or the plan keeps an instance warm.
        """
        if not settings.get(COLD_START_SECONDS):
            return None
        if plan not in {Plan.CONSUMPTION, Plan.FLEX}:
            raise AppLoadError(
                f"{COLD_START_SECONDS} is set, but only the plans consumption and flex start cold: "
                "give --plan, or leave it out"
            )
        return cls(number_above_zero(settings, COLD_START_SECONDS, 0.0))

    async def begin(self) -> None:
        """Note an invocation, and wait until the app is warm."""
        now = self._now()
        if not self._running and now - self._last_used >= IDLE_SECONDS:
            self._warm_at = now + self._delay_seconds
            _LOG.info("cold start: invocations wait for %g s", self._delay_seconds)
        self._running += 1
        if self._warm_at > now:
            await self._sleep(self._warm_at - now)

    def end(self) -> None:
        """Note the end of one."""
        self._running -= 1
        self._last_used = self._now()
