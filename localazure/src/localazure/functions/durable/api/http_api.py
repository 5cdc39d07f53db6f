"""The HTTP API: `/durabletask` for the SDK's client, `/runtime/webhooks/…` for the public.

As in the real extension, both have the same requests and responses. The public address requires a
key; the other one accepts requests from this machine only.
https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-api
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure.functions.durable.api import parameters, status
from localazure.functions.durable.api.links import RPC_PATH, WEBHOOK_PATH, Links
from localazure.functions.durable.engine.instance import FINISHED, Instance, Status
from localazure.functions.durable.engine.instance_id import InvalidInstanceId
from localazure.functions.durable.runtime import entities
from localazure.functions.durable.runtime.payloads import PayloadTooLarge
from localazure.functions.durable.runtime.task_hub import NotFinished, TaskHub, UnknownFunction
from localazure.functions.durable.store.records import (
    InstanceExists,
    InstanceFinished,
    InstanceMissing,
    InstanceQuery,
    NotFailed,
    position,
)

RETRY_AFTER_START_SECONDS = 10
RETRY_AFTER_POLL_SECONDS = 5

OpensWebhook = Callable[[str | None], bool]
"""Returns whether a key (None: the request has none) gives access to the public API."""
_Method = Callable[["HttpApi", web.Request], Awaitable[web.StreamResponse]]


class HttpApi:
    """Request handlers of one task hub."""

    def __init__(self, *, hub: TaskHub, links: Links, opens_webhook: OpensWebhook) -> None:
        self._hub = hub
        self._links = links
        self._opens_webhook = opens_webhook

    @staticmethod
    def routes(api_of: Callable[[web.Request], HttpApi]) -> list[web.RouteDef]:
        """All routes, under both prefixes. `api_of` returns the API of a request's task hub."""
        handlers: list[tuple[str, str, _Method]] = [
            ("POST", "/orchestrators/{name}", HttpApi._start),
            # The id is the rest of the path, because the SDK's client does not quote it.
            ("POST", r"/orchestrators/{name}/{instance:[\s\S]*}", HttpApi._start),
            ("GET", "/instances{slash:/?}", HttpApi._list),
            ("DELETE", "/instances{slash:/?}", HttpApi._purge_by),
            ("GET", "/instances/{instance}", HttpApi._status),
            ("DELETE", "/instances/{instance}", HttpApi._purge),
            ("POST", "/instances/{instance}/raiseEvent/{event}", HttpApi._raise_event),
            ("POST", "/instances/{instance}/terminate", HttpApi._with_reason(TaskHub.terminate)),
            ("POST", "/instances/{instance}/suspend", HttpApi._with_reason(TaskHub.suspend)),
            ("POST", "/instances/{instance}/resume", HttpApi._with_reason(TaskHub.resume)),
            ("POST", "/instances/{instance}/rewind", HttpApi._with_reason(TaskHub.rewind)),
            ("POST", "/instances/{instance}/restart", HttpApi._restart),
            ("GET", "/entities{slash:/?}", HttpApi._entities),
            ("GET", "/entities/{name}", HttpApi._entities),
            ("GET", "/entities/{name}/{key}", HttpApi._entity),
            ("POST", "/entities/{name}/{key}", HttpApi._signal),
        ]
        return [
            web.RouteDef(method, prefix + path, _guarded(handler, api_of, allows, refusal), {})
            for prefix, allows, refusal in (
                (RPC_PATH, _is_local, 403),
                (WEBHOOK_PATH, HttpApi._has_key, 401),
            )
            for method, path, handler in handlers
        ]

    @staticmethod
    def _with_reason(act: Callable[[TaskHub, str, str], Awaitable[None]]) -> _Method:
        async def handler(self: HttpApi, request: web.Request) -> web.Response:
            await act(self._hub, request.match_info["instance"], parameters.reason(request))
            return web.Response(status=202)

        return handler

    def _has_key(self, request: web.Request) -> bool:
        return self._opens_webhook(key_of(request))

    # --- orchestrations ------------------------------------------------------------------------

    async def _start(self, request: web.Request) -> web.Response:
        timeout_seconds = parameters.timeout_seconds(request)
        instance_id = await self._hub.start(
            request.match_info["name"],
            instance_id=parameters.instance_to_start(request),
            input_json=await parameters.json_body(request),
            version=request.query.get("version"),
        )
        if timeout_seconds is None:
            return self._started(instance_id)
        return await self._finished_or_started(request, instance_id, timeout_seconds)

    async def _finished_or_started(
        self, request: web.Request, instance_id: str, timeout_seconds: float
    ) -> web.Response:
        """Respond with the output if the instance completes in time, else with management URLs."""
        try:
            instance = await asyncio.wait_for(self._hub.reached(instance_id), timeout_seconds)
        except TimeoutError:
            return self._started(instance_id)
        if instance.status is not Status.COMPLETED:
            return self._describe(request, instance)
        view = status.view(instance, show_input=False, show_output=False)
        return web.json_response(view["output"])

    def _started(self, instance_id: str) -> web.Response:
        payload = self._links.management(instance_id)
        headers = {
            "Location": payload["statusQueryGetUri"],
            "Retry-After": str(RETRY_AFTER_START_SECONDS),
        }
        return web.json_response(payload, status=202, headers=headers)

    async def _status(self, request: web.Request) -> web.Response:
        return self._describe(request, self._hub.instance(request.match_info["instance"]))

    def _describe(self, request: web.Request, instance: Instance) -> web.Response:
        events = None
        if parameters.flag(request, "showHistory", default=False):
            events = self._hub.history(instance)
        payload = status.view(
            instance,
            show_input=parameters.flag(request, "showInput", default=True),
            events=events,
            show_output=parameters.flag(request, "showHistoryOutput", default=False),
        )
        if events is not None and parameters.flag(request, "wholeHistory", default=False):
            payload["historyEvents"] = events  # an addition: the page of the scheduler shows it
        if instance.status not in FINISHED:
            headers = {
                "Location": str(request.url),
                "Retry-After": str(RETRY_AFTER_POLL_SECONDS),
            }
            return web.json_response(payload, status=202, headers=headers)
        failed = instance.status is Status.FAILED
        as_error = failed and parameters.flag(
            request, "returnInternalServerErrorOnFailure", default=False
        )
        return web.json_response(payload, status=500 if as_error else 200)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        page_size = parameters.page_size(request)
        wanted = parameters.query(request)
        after = parameters.read_token(request.headers.get(parameters.CONTINUATION_HEADER))
        # The SDK's client does not follow continuation tokens, so it gets all instances at once.
        if request.path.startswith(RPC_PATH) and "top" not in request.query:
            return await self._list_all(request, wanted)
        found = self._hub.store.query(wanted, after=after, limit=page_size)
        token = parameters.write_token(position(found[-1])) if len(found) == page_size else ""
        return web.json_response(
            _views(request, found), headers={parameters.CONTINUATION_HEADER: token}
        )

    async def _list_all(self, request: web.Request, wanted: InstanceQuery) -> web.StreamResponse:
        """Stream all instances page by page, to bound memory and keep the event loop responsive."""
        response = web.StreamResponse(headers={parameters.CONTINUATION_HEADER: ""})
        response.content_type = "application/json"
        await response.prepare(request)
        separator = "["
        for page in self._hub.store.pages(wanted):
            text = json.dumps(_views(request, page))
            await response.write(f"{separator}{text[1:-1]}".encode())
            await asyncio.sleep(0)
            separator = ","
        await response.write(b"]" if separator == "," else b"[]")
        await response.write_eof()
        return response

    async def _raise_event(self, request: web.Request) -> web.Response:
        if request.can_read_body and request.content_type != "application/json":
            return _error(400, "Only application/json request content is supported")
        await self._hub.raise_event(
            request.match_info["instance"],
            request.match_info["event"],
            await parameters.json_body(request),
        )
        return web.Response(status=202)

    async def _restart(self, request: web.Request) -> web.Response:
        instance_id = await self._hub.restart(
            request.match_info["instance"],
            with_new_id=parameters.flag(request, "restartWithNewInstanceId", default=True),
        )
        return self._started(instance_id)

    async def _purge(self, request: web.Request) -> web.Response:
        count = await self._hub.purge(request.match_info["instance"])
        return web.json_response({"instancesDeleted": count})

    async def _purge_by(self, request: web.Request) -> web.Response:
        # As in the real API, a purge ignores the prefix of instance ids.
        wanted = replace(parameters.query(request), prefix="", name="")
        if wanted.created_from is None:
            return _error(400, "Please provide value for 'createdTimeFrom' parameter.")
        count = await self._hub.purge_by(wanted)
        if not count:
            return _error(404, "No finished instance meets the conditions")
        return web.json_response({"instancesDeleted": count})

    # --- entities ------------------------------------------------------------------------------

    async def _entities(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name")
        prefix = entities.entity_id(name, "") if name else ""
        show_state = parameters.flag(request, "fetchState", default=False)
        payload: list[dict[str, Any]] = []
        for entity in self._hub.store.entities(prefix):
            entity_name, key = entities.split_entity_id(entity.entity_id)
            line: dict[str, Any] = {
                "entityId": {"name": entity_name, "key": key},
                "lastOperationTime": status.seconds(entity.updated_at),
            }
            if show_state:
                line["state"] = json.loads(entity.state_json or "null")
            payload.append(line)
        return web.json_response(payload)

    async def _entity(self, request: web.Request) -> web.Response:
        name, key = request.match_info["name"], request.match_info["key"]
        state = self._hub.store.entity_state(entities.entity_id(name, key))
        if state is None:
            return _error(404, f"There is no entity {name!r} with key {key!r}")
        return web.json_response(text=state)

    async def _signal(self, request: web.Request) -> web.Response:
        await self._hub.signal_entity(
            request.match_info["name"],
            request.match_info["key"],
            request.query.get("op", ""),
            await parameters.json_body(request),
        )
        return web.Response(status=202)


# The HTTP status of each exception; the SDK's client distinguishes them.
_ERRORS: Final[dict[type[Exception], tuple[int, str]]] = {
    InstanceMissing: (404, "No instance with ID '{}' found."),
    InstanceFinished: (410, "Instance with ID '{}' has finished."),
    NotFailed: (410, "Instance with ID '{}' did not fail; only a failed one can be rewound."),
    NotFinished: (412, "{}"),
    UnknownFunction: (400, "{}"),
    InvalidInstanceId: (400, "{}"),
    PayloadTooLarge: (400, "{}"),
    parameters.BadRequest: (400, "{}"),
    InstanceExists: (500, "{}"),
}


def _guarded(
    handler: _Method,
    api_of: Callable[[web.Request], HttpApi],
    allows: Callable[[HttpApi, web.Request], bool],
    refusal: int,
) -> Handler:
    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            api = api_of(request)
            if not allows(api, request):
                return web.Response(status=refusal)
            return await handler(api, request)
        except tuple(_ERRORS) as error:
            code, text = _ERRORS[type(error)]
            return _error(code, text.format(error))

    return guarded


def key_of(request: web.Request) -> str | None:
    """The key in a request to the public API."""
    return request.query.get("code") or request.headers.get("x-functions-key")


def _is_local(_api: HttpApi, request: web.Request) -> bool:
    return not request.remote or ipaddress.ip_address(request.remote).is_loopback


def _error(code: int, message: str) -> web.Response:
    """The error body of the real host. The SDK reads its ExceptionMessage."""
    return web.json_response({"Message": message, "ExceptionMessage": message}, status=code)


def _views(request: web.Request, instances: Iterable[Instance]) -> list[dict[str, Any]]:
    show_input = parameters.flag(request, "showInput", default=True)
    return [status.view(one, show_input=show_input, show_output=False) for one in instances]
