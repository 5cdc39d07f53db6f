"""The host's admin API under /admin, for users and tools; it requires the master key.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-manually-run-non-http and the
responses of the real host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure.functions import logs
from localazure.functions.app import binding_kinds
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.http.authorization import KeyRing
from localazure.functions.triggers.http.trigger import request_key, url_path
from localazure.functions.worker.invocation import Invoker, TriggerData
from localazure.json_text import parse_json

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.admin")

HOST_VERSION: Final = "4.0.0"

# Azure creates these system keys for an app with functions of these kinds.
# https://learn.microsoft.com/azure/azure-functions/function-keys-how-to
_SYSTEM_KEYS: Final = {
    binding_kinds.BLOB_TRIGGER: "blobs_extension",
    binding_kinds.EVENT_GRID_TRIGGER: "eventgrid_extension",
    **dict.fromkeys(binding_kinds.DURABLE_TRIGGERS, "durabletask_extension"),
}

ByHand = Callable[[str], TriggerData]
"""Converts the input of a manual run to the trigger's data."""


@dataclass(kw_only=True)
class AdminApi:
    """Shows the host's status, functions and keys, and runs a function manually."""

    functions: Mapping[str, LoadedFunction]
    """The functions by their names in lower case."""
    faults: Mapping[str, str]
    base_url: str
    route_prefix: str
    keys: KeyRing
    invoker: Invoker
    by_hand: Mapping[str, ByHand]

    def __post_init__(self) -> None:
        self._started = time.monotonic()
        self._running: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        """The routes under /admin."""
        one = "/admin/functions/{name}"
        return [
            web.get("/admin/host/ping", self._guarded(self._ping)),
            web.post("/admin/host/ping", self._guarded(self._ping)),
            web.get("/admin/host/status", self._guarded(self._status)),
            web.get("/admin/host/{scope:keys|functionkeys}", self._guarded(self._host_keys)),
            web.get("/admin/host/systemkeys", self._guarded(self._system_keys)),
            web.get("/admin/functions", self._guarded(self._list)),
            web.get(one, self._guarded(self._get)),
            web.get(f"{one}/status", self._guarded(self._function_status)),
            web.get(f"{one}/keys", self._guarded(self._function_keys)),
            web.post(one, self._guarded(self._run)),
        ]

    def _guarded(self, handler: Handler) -> Handler:
        async def check(request: web.Request) -> web.StreamResponse:
            if not self.keys.opens_admin(request_key(request)):
                return web.Response(status=401)
            return await handler(request)

        return check

    def _function(self, request: web.Request) -> LoadedFunction:
        function = self.functions.get(request.match_info["name"].lower())
        if function is None:
            raise web.HTTPNotFound
        return function

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _status(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "id": "localazure",
                "state": "Running",
                "version": HOST_VERSION,
                "versionDetails": f"{HOST_VERSION} localazure",
                "processUptime": int((time.monotonic() - self._started) * 1000),
            }
        )

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response([self._describe(one) for one in self.functions.values()])

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(self._describe(self._function(request)))

    async def _function_status(self, request: web.Request) -> web.Response:
        function = self._function(request)
        errors = [self.faults[function.name]] if function.name in self.faults else []
        return web.json_response(
            {"isDisabled": function.is_disabled, **({"errors": errors} if errors else {})}
        )

    async def _host_keys(self, _: web.Request) -> web.Response:
        return _keys({"default": self.keys.host})

    async def _system_keys(self, _: web.Request) -> web.Response:
        kinds = {function.trigger.kind for function in self.functions.values()}
        names = {name for kind, name in _SYSTEM_KEYS.items() if kind in kinds}
        return _keys(dict.fromkeys(sorted(names), self.keys.system))

    async def _function_keys(self, request: web.Request) -> web.Response:
        return _keys({"default": self.keys.function_key(self._function(request).name)})

    async def _run(self, request: web.Request) -> web.Response:
        function = self._function(request)
        if function.name in self.faults:
            return web.Response(status=404, text="the function is in error; see its status")
        make = self.by_hand.get(function.trigger.kind)
        if make is None:
            return web.Response(
                status=400, text=f"a {function.trigger.kind} function is not run by hand"
            )
        try:
            document = parse_json(await request.read())
            data = make(str(document["input"]))
        except (ValueError, KeyError, TypeError):
            return web.Response(status=400, text='the body must be {"input": "<text>"}')
        task = asyncio.create_task(self._invoke(function, data))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return web.Response(status=202)

    async def _invoke(self, function: LoadedFunction, data: TriggerData) -> None:
        try:
            await self.invoker.invoke(function, data)
        except Exception:  # noqa: BLE001 - logged by the invoker; the client has the response 202
            _LOG.debug("'%s', run by hand, failed", function.name)

    def _describe(self, function: LoadedFunction) -> dict[str, Any]:
        url = None
        if function.trigger.kind == binding_kinds.HTTP_TRIGGER:
            url = f"{self.base_url}/{url_path(function, self.route_prefix)}"
        return {
            "name": function.name,
            "href": f"{self.base_url}/admin/functions/{function.name}",
            "invoke_url_template": url,
            "language": "python",
            "isDisabled": function.is_disabled,
            "config": {
                "name": function.name,
                "bindings": [dict(binding.settings) for binding in function.bindings],
            },
        }


def _keys(values: Mapping[str, str]) -> web.Response:
    keys = [{"name": name, "value": value} for name, value in values.items()]
    return web.json_response({"keys": keys, "links": []})
