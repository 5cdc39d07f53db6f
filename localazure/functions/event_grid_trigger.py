"""The Event Grid webhook: handshakes, and an invocation for each event.

Events may come in Event Grid's schema or in that of CloudEvents, singly or as an array.

Sources: https://learn.microsoft.com/azure/event-grid/webhook-event-delivery (handshakes),
https://github.com/Azure/azure-functions-eventgrid-extension (answers)
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any, Final, cast

from aiohttp import web
from azure.functions.meta import Datum

from localazure.functions import logs
from localazure.functions.authorization import KeyRing
from localazure.functions.http_trigger import request_key
from localazure.functions.invocation import Invoker, TriggerData
from localazure.functions.loader import LoadedFunction

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.event_grid")

PATH: Final = "/runtime/webhooks/EventGrid"

_VALIDATION_EVENT: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"


def is_batched(function: LoadedFunction) -> bool:
    """Whether a function takes all events of a request at once."""
    return str(function.trigger.settings.get("cardinality", "")).lower() == "many"


class EventGridTrigger:
    """All Event Grid functions of an app behind one webhook."""

    def __init__(
        self, functions: Iterable[LoadedFunction], keys: KeyRing, invoker: Invoker
    ) -> None:
        self._functions = {function.name.lower(): function for function in functions}
        self._keys = keys
        self._invoker = invoker

    def routes(self) -> list[web.RouteDef]:
        """The webhook's routes."""
        # The extension's documents spell the path in two ways.
        return [
            route
            for path in (PATH, PATH.lower())
            for route in (web.post(path, self._deliver), web.options(path, self._handshake))
        ]

    async def _handshake(self, request: web.Request) -> web.Response:
        """CloudEvents' abuse protection."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        origin = request.headers.get("WebHook-Request-Origin")
        if origin is None:
            return web.Response(status=400, text="WebHook-Request-Origin is missing")
        return web.Response(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": "*"})

    async def _deliver(self, request: web.Request) -> web.Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        function = self._functions[request.query["functionName"].lower()]
        try:
            document: Any = json.loads(await request.read())
        except ValueError:
            return web.Response(status=400, text="the body is not JSON")
        events = cast("list[Any]", document if isinstance(document, list) else [document])
        if not all(isinstance(event, dict) for event in events):
            return web.Response(status=400, text="the body is no event and no array of events")
        answer = web.Response(status=400, text="aeg-event-type is missing or unknown")
        match request.headers.get("aeg-event-type", "").lower():
            case "subscriptionvalidation":
                answer = _answer_validation(events)
            case "unsubscribe":
                answer = web.Response(status=202)
            case "notification":
                answer = await self._notify(function, events)
            case _:
                pass
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._keys.opens_webhook(request_key(request)):
            return web.Response(status=401)
        name = request.query.get("functionName", "")
        if name.lower() not in self._functions:
            return web.Response(status=404, text=f"no Event Grid function is named {name!r}")
        return None

    async def _notify(self, function: LoadedFunction, events: list[Any]) -> web.Response:
        payloads = [events] if is_batched(function) else events
        outcomes = await asyncio.gather(
            *(self._invoker.invoke(function, event_data(payload)) for payload in payloads),
            return_exceptions=True,
        )
        failed = sum(isinstance(outcome, BaseException) for outcome in outcomes)
        if failed:
            # Event Grid sends the whole request again, those that succeeded included.
            _LOG.warning("'%s' failed on %d of %d events", function.name, failed, len(payloads))
            return web.Response(status=500)
        return web.Response(status=202)


def event_data(payload: object) -> TriggerData:
    """What an Event Grid trigger hands to its function: one event, or an array of them."""
    return TriggerData(Datum(json.dumps(payload), "json"))


def _answer_validation(events: list[Any]) -> web.Response:
    """Event Grid's own handshake: the code goes back."""
    for event in events:
        data = event.get("data")
        code = data.get("validationCode") if isinstance(data, dict) else None
        if event.get("eventType") == _VALIDATION_EVENT and code:
            return web.json_response({"validationResponse": code})
    return web.Response(status=400, text=f"no {_VALIDATION_EVENT} with a validationCode")
