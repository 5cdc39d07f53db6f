"""Webhooks for Event Grid: handshakes, keys and receivers of events.

Events have the schema of Event Grid or of CloudEvents; a request has one event or an array.

Sources: https://learn.microsoft.com/azure/event-grid/webhook-event-delivery (handshakes),
https://github.com/Azure/azure-functions-eventgrid-extension (responses)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

from aiohttp import web

from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.http.trigger import request_key
from localazure.json_text import parse_json

_VALIDATION_EVENT: Final = "Microsoft.EventGrid.SubscriptionValidationEvent"

Receiver = Callable[[list[Any]], Awaitable[bool]]
"""Handles the events of a request; if it returns False, Event Grid sends all of them again."""


class EventGridWebhook:
    """A webhook; the query parameter functionName, in lower case, selects the receiver."""

    def __init__(self, path: str, receivers: Mapping[str, Receiver], keys: KeyRing) -> None:
        self._path = path
        self._receivers = receivers
        self._keys = keys

    def routes(self) -> list[web.RouteDef]:
        """The webhook's routes."""
        # The real host's routes ignore case.
        path = f"/{{path:(?i:{self._path.lstrip('/')})}}"
        return [web.post(path, self._deliver), web.options(path, self._handshake)]

    async def _handshake(self, request: web.Request) -> web.Response:
        """Respond to the abuse protection handshake of CloudEvents."""
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
        receive = self._receivers[request.query["functionName"].lower()]
        try:
            document: Any = parse_json(await request.read())
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
                answer = web.Response(status=202 if await receive(events) else 500)
            case _:
                pass
        return answer

    def _refusal(self, request: web.Request) -> web.Response | None:
        if not self._keys.opens_webhook(request_key(request)):
            return web.Response(status=401)
        name = request.query.get("functionName", "")
        if name.lower() not in self._receivers:
            return web.Response(status=404, text=f"no function here is named {name!r}")
        return None


def _answer_validation(events: list[Any]) -> web.Response:
    """Respond to Event Grid's handshake by returning its validation code."""
    for event in events:
        data = event.get("data")
        code = data.get("validationCode") if isinstance(data, dict) else None
        if event.get("eventType") == _VALIDATION_EVENT and code:
            return web.json_response({"validationResponse": code})
    return web.Response(status=400, text=f"no {_VALIDATION_EVENT} with a validationCode")
