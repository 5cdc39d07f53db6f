"""Simulates cold starts by a delay of the first invocations after an idle period.

On the Consumption and Flex Consumption plans an idle app has no instance: Azure releases the
instance after "roughly 20 minutes" without an invocation. The duration of the next start depends on
the app, and Microsoft publishes no figure, so the user chooses the delay.

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
    """Delays the first invocations of an app, at the start and after an idle period.

    Args:
        delay_seconds: counted from the first invocation; later ones wait for the remaining time.
        now: seconds of a monotonic clock.
        sleep: waits for a number of seconds.
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
        """Read the app settings; return None for no delay.

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
        """Register the start of an invocation, and wait until the app is warm."""
        now = self._now()
        if not self._running and now - self._last_used >= IDLE_SECONDS:
            self._warm_at = now + self._delay_seconds
            _LOG.info("cold start: invocations wait for %g s", self._delay_seconds)
        self._running += 1
        if self._warm_at > now:
            await self._sleep(self._warm_at - now)

    def end(self) -> None:
        """Register the end of an invocation."""
        self._running -= 1
        self._last_used = self._now()
