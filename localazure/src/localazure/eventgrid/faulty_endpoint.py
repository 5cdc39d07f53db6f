"""A destination with faults: deliveries that are late, refused, doubled or lost."""

from __future__ import annotations

import asyncio

from localazure.eventgrid.delivery import Endpoint
from localazure.eventgrid.retry import Outcome, Verdict
from localazure.eventgrid.schemas import Event
from localazure.faults.injector import Injector
from localazure.faults.plan import OF_DELIVERIES, Fault


class FaultyEndpoint:
    """Delivers to an endpoint, subject to the faults of the plan.

    Args:
        endpoint: the destination.
        subscription: the subscription's name; the operation is `deliver/NAME`.
        faults: this part's injected faults.
    """

    def __init__(self, endpoint: Endpoint, subscription: str, faults: Injector) -> None:
        self._endpoint = endpoint
        self._operation = f"deliver/{subscription}"
        self._faults = faults

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:
        """Deliver events. Returns the outcome that Event Grid observes."""
        rule = self._faults.next(self._operation, OF_DELIVERIES)
        if rule is None:
            return await self._endpoint.deliver(events, attempts)
        match rule.fault:
            case Fault.ERROR:
                return Outcome(Verdict.RETRY, "Busy")
            case Fault.RESET:
                return Outcome(Verdict.RETRY, "SocketError")
            case Fault.LOSS:
                return Outcome(Verdict.DELIVERED, "Delivered")
            case Fault.LATENCY:
                await asyncio.sleep(rule.seconds)
            case Fault.DUPLICATE:
                await self._endpoint.deliver(events, attempts)
            case _:  # the destination accepted the events, but its answer is lost
                await self._endpoint.deliver(events, attempts)
                return Outcome(Verdict.RETRY, "TimedOut")
        return await self._endpoint.deliver(events, attempts)
