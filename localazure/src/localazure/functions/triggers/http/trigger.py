"""HTTP triggers: finds a request's function, checks the key, responds with the function's result.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook-trigger
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from http.cookies import Morsel, SimpleCookie
from typing import Any, Final, cast

from aiohttp import web
from azure.functions.meta import Datum

from localazure import limits
from localazure.functions import logs
from localazure.functions.app import binding_kinds
from localazure.functions.app.expressions import json_properties
from localazure.functions.app.loader import LoadedFunction
from localazure.functions.http import authorization
from localazure.functions.http.authorization import KeyRing
from localazure.functions.http.routing import RouteTable, RouteTemplate
from localazure.functions.http.web_extension import NATIVE, WebExtension
from localazure.functions.worker.context import TraceContext
from localazure.functions.worker.invocation import Invoker, Outcome, TriggerData

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.http")

# Kestrel's limit in the real host, and the app setting that overrides it.
# https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook-trigger#limits
DEFAULT_MAX_REQUEST_BYTES: Final = limits.FUNCTIONS_BODY.value
_LIMIT_SETTING: Final = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"

# The timeout of the load balancer in front of the real host. The function continues after it.
ANSWER_SECONDS: float = limits.FUNCTIONS_HTTP_ANSWER.value

_RESERVED_ROUTES: Final = ("admin", "runtime")


@dataclass(frozen=True)
class HttpEndpoint:
    """The route, methods and authorization level of an HTTP function."""

    function: LoadedFunction
    template: RouteTemplate
    """The route, including the prefix."""
    methods: frozenset[str]
    """The methods in upper case; empty for all methods."""
    level: str

    @classmethod
    def of(cls, function: LoadedFunction, route_prefix: str) -> HttpEndpoint:
        """Read a function's trigger.

        Raises:
            ValueError: the route or the level is invalid.
        """
        settings = function.trigger.settings
        route = _route(function)
        if route.lower().startswith(_RESERVED_ROUTES):
            raise ValueError("The specified route conflicts with one or more built in routes.")
        level = str(settings.get("authLevel") or authorization.FUNCTION).lower()
        if level not in authorization.LEVELS:
            raise ValueError(f"auth level {level!r} is not one of {sorted(authorization.LEVELS)}")
        return cls(
            function=function,
            template=RouteTemplate.parse(url_path(function, route_prefix)),
            methods=frozenset(str(method).upper() for method in settings.get("methods") or ()),
            level=level,
        )

    def check_against(self, others: Iterable[HttpEndpoint]) -> None:
        """Check that no other function has the same route and one of the same methods.

        Raises:
            ValueError: names the other function.
        """
        for other in others:
            shares_method = not (self.methods and other.methods) or self.methods & other.methods
            if shares_method and self.template.text.lower() == other.template.text.lower():
                raise ValueError(
                    "The route specified conflicts with the route defined by function "
                    f"'{other.function.name}'."
                )


def url_path(function: LoadedFunction, route_prefix: str) -> str:
    """The route template of an HTTP function, without a leading slash."""
    route = _route(function)
    return f"{route_prefix}/{route}" if route_prefix else route


def _route(function: LoadedFunction) -> str:
    return str(function.trigger.settings.get("route") or function.name).strip("/")


def max_request_bytes(settings: Mapping[str, str]) -> int:
    """The largest accepted body; the response to a larger one is 413."""
    limit = settings.get(_LIMIT_SETTING, "")
    return int(limit) if limit.isdecimal() else DEFAULT_MAX_REQUEST_BYTES


def request_key(request: web.Request) -> str | None:
    """The access key of a request, or None."""
    return request.headers.get(authorization.HEADER) or request.query.get(
        authorization.QUERY_PARAMETER
    )


class HttpTrigger:
    """The request handler of all HTTP functions of an app."""

    def __init__(
        self,
        endpoints: Iterable[HttpEndpoint],
        keys: KeyRing,
        invoker: Invoker,
        extension: WebExtension | None = None,
    ) -> None:
        self._routes = RouteTable([(endpoint.template, endpoint) for endpoint in endpoints])
        self._keys = keys
        self._invoker = invoker
        self._extension = extension
        self._running_on: set[asyncio.Future[Outcome]] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request.

        Status: 404 unknown route or method, 401 wrong key, 500 failed function, 504 timeout.
        """
        matched = self._routes.match(
            request.rel_url.raw_path,
            lambda endpoint: not endpoint.methods or request.method in endpoint.methods,
        )
        if matched is None:
            # The status of the home page shows that the host runs.
            return web.Response(status=200 if request.path == "/" else 404)
        endpoint, parameters = matched
        function = endpoint.function
        if not self._keys.opens_function(request_key(request), function.name, endpoint.level):
            return web.Response(status=401)
        if self._extension is not None:
            return await self._stream(self._extension, request, parameters, function)
        data = request_data(request, parameters, await request.read())
        return await self._answer(function, data)

    async def _answer(self, function: LoadedFunction, data: TriggerData) -> web.Response:
        invocation = asyncio.ensure_future(self._invoker.invoke(function, data))
        try:
            await asyncio.wait([invocation], timeout=ANSWER_SECONDS)
        except asyncio.CancelledError:  # the client has disconnected
            invocation.cancel()
            raise
        if not invocation.done():
            return self._too_late(function, invocation)
        try:
            outcome = invocation.result()
        except Exception:  # noqa: BLE001 - logged by the invoker; the client gets no details
            return web.Response(status=500)
        try:
            return _response(function, outcome)
        except (TypeError, ValueError):  # for example, an invalid status or header
            _LOG.exception("'%s' gave a response that cannot be sent", function.name)
            return web.Response(status=500)

    def _too_late(
        self, function: LoadedFunction, invocation: asyncio.Future[Outcome]
    ) -> web.Response:
        """Respond as the load balancer does; the function continues, but its result is lost."""
        _LOG.error(
            "'%s' has not answered within %g s: on Azure its caller gets an error then, whatever "
            "functionTimeout says. Return 202 at once, and work in a queue or an orchestration",
            function.name,
            ANSWER_SECONDS,
        )
        self._running_on.add(invocation)
        invocation.add_done_callback(self._finish)
        return web.Response(status=504)

    def _finish(self, invocation: asyncio.Future[Outcome]) -> None:
        self._running_on.discard(invocation)
        if not invocation.cancelled():
            invocation.exception()  # marks the error as retrieved; logged by the invoker

    async def _stream(
        self,
        extension: WebExtension,
        request: web.Request,
        parameters: dict[str, str],
        function: LoadedFunction,
    ) -> web.StreamResponse:
        """Respond by the web framework of the app."""
        data = request_data(request, parameters, b"")

        async def invoke(native: Any) -> Any:
            outcome = await self._invoker.invoke(
                function, replace(data, datum=Datum(native, NATIVE))
            )
            if outcome.result is None or outcome.result.value is None:
                _LOG.error("'%s' returned None: return a response, or its body", function.name)
                raise TypeError(function.name)
            return outcome.result.value

        try:
            return await extension.respond(request, parameters, invoke)
        except Exception:  # noqa: BLE001 - logged by the invoker; the client gets no details
            return web.Response(status=500)


def request_data(request: web.Request, parameters: dict[str, str], body: bytes) -> TriggerData:
    """The request that an HTTP trigger passes to its function."""

    def texts(pairs: Iterable[tuple[str, str]]) -> dict[str, Datum]:
        joined: dict[str, str] = {}
        for name, value in pairs:  # the real host joins repeated names, too
            joined[name] = f"{joined[name]},{value}" if name in joined else value
        return {name: Datum(value, "string") for name, value in joined.items()}

    headers = [(name.lower(), value) for name, value in request.headers.items()]
    value = {
        "method": Datum(request.method, "string"),
        "url": Datum(str(request.url), "string"),
        "headers": texts(headers),
        "query": texts(request.query.items()),
        "params": texts(parameters.items()),
        "body": Datum(body, "bytes"),
    }
    trace = TraceContext(
        request.headers.get("traceparent", ""), request.headers.get("tracestate", "")
    )

    def binding_data() -> dict[str, Any]:
        query = dict(request.query)
        return {
            **json_properties(body.decode(errors="replace")),
            **query,
            **parameters,
            "Query": query,
            "Headers": dict(headers),
        }

    return TriggerData(Datum(value, "http"), trace=trace, binding_data=binding_data)


def _response(function: LoadedFunction, outcome: Outcome) -> web.Response:
    # The response is the http output, or else the return value, even if it is for another binding.
    datum = outcome.result
    for binding in function.bindings_of(binding_kinds.HTTP):
        datum = outcome.outputs.get(binding.name, datum)
    match datum:
        case None | Datum(type=None):
            return web.Response(status=204)
        case Datum(type="http", value=value):
            return http_response(cast("dict[str, Any]", value))
        case Datum(value=str(text)):
            return web.Response(text=text)
        case Datum(value=bytes(body)):
            return web.Response(body=body)
        case _:
            raise TypeError(f"a {datum.type!r} value is not an HTTP response")


def http_response(value: dict[str, Any]) -> web.Response:
    """The response that a function's HttpResponse describes, as the SDK encodes it.

    Raises:
        ValueError: it cannot be sent.
    """
    response = web.Response(status=int(value["status_code"].value), body=value["body"].value)
    for name, header in value["headers"].items():
        if name.lower() != "content-length":  # set by aiohttp; for HEAD it may not match
            response.headers[name] = header.value
    cookies = cast("list[SimpleCookie]", value["cookies"] or [])
    for cookie in cookies:
        for morsel in cookie.values():
            _check_cookie(morsel)
            response.headers.add("Set-Cookie", morsel.OutputString())
    return response


def _check_cookie(morsel: Morsel[str]) -> None:
    """Check a cookie as the worker does; it drops what is no SameSite.

    Raises:
        ValueError: the worker fails on its date or its age, and so does the invocation.
    """
    if expires := morsel["expires"]:
        datetime.strptime(expires, "%a, %d %b %Y %H:%M:%S GMT")  # noqa: DTZ007 - only checked
    if age := morsel["max-age"]:
        float(age)
    if morsel["samesite"].lower() not in {"lax", "strict", "none"}:
        morsel["samesite"] = ""
