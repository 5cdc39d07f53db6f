"""Every call of a service: how long it takes, and what goes wrong on the way."""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from azure.core.exceptions import ServiceResponseError

from tests.fakes.azure_ml import refusal
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import CallFault, Crash, Outage, Service, Story

Result = TypeVar("Result")
# The SDKs give up after their own retries.
GIVE_UP_SECONDS = 20.0
HANG_SECONDS = 130.0


class Unavailable(Exception):
    """A service did not answer; each fake raises what its SDK does."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"status {status}")
        self.status = status
        """HTTP; None: no answer came, and the call may have taken effect."""


class Network:
    """The network between the host and the services."""

    def __init__(self, scheduler: Scheduler, story: Story, chance: random.Random) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self.outages = [item for item in story.items if isinstance(item, Outage)]
        self._faults = {
            (item.service, item.number): item for item in story.items if isinstance(item, CallFault)
        }
        self._crashes = {item.call: item for item in story.items if isinstance(item, Crash)}
        self.calls = Counter[Service]()
        self.total_calls = 0
        self.operations = Counter[tuple[Service, str]]()
        self.crash: Callable[[float], None] = lambda _: None
        """Ends the host for so many seconds."""

    def latency(self) -> float:
        """Seconds: mostly a few milliseconds, sometimes seconds."""
        draw = self._chance.random()
        if draw < 0.9:
            return 0.004 + draw * 0.1
        return (draw - 0.9) * 30.0

    def call(
        self,
        service: Service,
        operation: str,
        effect: Callable[[], Result],
        *,
        pause: Callable[[float], None] | None = None,
        limit: float | None = None,
    ) -> Result:
        """One call from a thread of the host, with its own limit of seconds, if it has one.

        Raises:
            Unavailable: the service did not answer, or not in time.
            ProcessDied: the host died before or after its effect.
        """
        pause = pause or self._scheduler.pause
        self.operations[service, operation] += 1
        number = self.total_calls
        self.total_calls += 1
        self.calls[service] += 1
        fault = self._faults.get((service, self.calls[service]))
        crash = self._crashes.get(number)
        pause(self.latency())
        if crash is not None and not crash.after:
            self._die(crash, pause)
        if self.outages:
            self._check_outage(service, pause, limit)
        if fault is not None and fault.end in ("unavailable", "throttled"):
            pause(GIVE_UP_SECONDS)
            raise Unavailable(429 if fault.end == "throttled" else 503)
        result = effect()
        if crash is not None and crash.after:
            self._die(crash, pause)
        if fault is not None and fault.end == "answer lost":
            pause(GIVE_UP_SECONDS)
            raise Unavailable(None)
        if fault is not None:
            pause(1.0)
            result = effect()
        return result

    def call_rest(self, service: Service, operation: str, effect: Callable[[], Result]) -> Result:
        """One call of a service whose SDK stands on azure-core, and raises its errors."""
        try:
            return self.call(service, operation, effect)
        except Unavailable as error:
            if error.status is None:
                raise ServiceResponseError("no answer") from error
            raise refusal(error.status, "the service is busy") from error

    def _die(self, crash: Crash, pause: Callable[[float], None]) -> None:
        self._scheduler.after(0, functools.partial(self.crash, crash.down))
        pause(GIVE_UP_SECONDS)

    def is_out(self, service: Service, now: float) -> bool:
        """Whether a service answers nothing at that second."""
        return any(
            each.service == service and each.at <= now < each.at + each.seconds
            for each in self.outages
        )

    def _check_outage(
        self, service: Service, pause: Callable[[float], None], limit: float | None
    ) -> None:
        for outage in self.outages:
            if (
                outage.service == service
                and outage.at <= self._scheduler.time() < outage.at + outage.seconds
            ):
                left = outage.at + outage.seconds - self._scheduler.time()
                hang = max(left, HANG_SECONDS) if outage.endless else HANG_SECONDS
                pause(min(hang, limit or hang) if outage.hangs else GIVE_UP_SECONDS)
                raise Unavailable(None if outage.hangs else 503)
