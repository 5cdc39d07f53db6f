"""Event Grid triggers: an invocation for each event that the webhook receives.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-event-grid-trigger
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Iterable
from typing import Any, Final, cast

from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.event_grid.webhook import EventGridWebhook
from localazure.functions.worker.invocation import Invoker, TriggerData

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.event_grid")

PATH: Final = "/runtime/webhooks/EventGrid"


class EventGridTrigger(EventGridWebhook):
    """The webhook of all Event Grid functions of an app."""

    def __init__(
        self, functions: Iterable[LoadedFunction], keys: KeyRing, invoker: Invoker
    ) -> None:
        self._invoker = invoker
        super().__init__(
            PATH,
            {
                function.name.lower(): functools.partial(self._invoke, function)
                for function in functions
            },
            keys,
        )

    async def _invoke(self, function: LoadedFunction, events: list[Any]) -> bool:
        payloads = [events] if function.trigger.is_batched else events
        outcomes = await asyncio.gather(
            *(self._invoker.invoke(function, event_data(payload)) for payload in payloads),
            return_exceptions=True,
        )
        failed = sum(isinstance(outcome, BaseException) for outcome in outcomes)
        if failed:
            # Event Grid sends the whole request again, including the events that succeeded.
            _LOG.warning("'%s' failed on %d of %d events", function.name, failed, len(payloads))
        return not failed


def event_data(payload: object) -> TriggerData:
    """The data that an Event Grid trigger passes to its function: one event, or an array."""
    data = cast("dict[str, Any]", payload).get("data") if isinstance(payload, dict) else None
    return TriggerData(Datum(json.dumps(payload), "json"), binding_data=lambda: {"data": data})
