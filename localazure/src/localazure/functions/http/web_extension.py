"""HTTP functions written for a web framework: `azurefunctions.extensions.http.fastapi`.

All HTTP functions of an app that imports the extension get the framework's requests and may return
its responses, streamed in both directions. The real worker starts a web server to which the host
forwards requests; this host calls the extension's application in the same process.

This module does not import the extension, because an app that uses it has imported it.

Source: https://github.com/Azure/azure-functions-python-worker (http_v2)
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, cast

from aiohttp import web

from localazure.functions.http.asgi_bridge import AsgiApp, AsgiBridge

NATIVE: Final = "native"
"""The type of a Datum that holds a request of the framework, or a function's return value."""

_BASE: Final = "azurefunctions.extensions.base"
_INVOKE: Final = "localazure.functions.invoke"

Invoke = Callable[[Any], Awaitable[Any]]
"""Calls the function with a request of the framework; returns the function's result."""


def _base() -> Any:
    """The base module of extensions, if the app has loaded an extension for HTTP."""
    base = sys.modules.get(_BASE)
    return base if base is not None and base.HttpV2FeatureChecker.http_v2_enabled() else None


def is_used() -> bool:
    """Whether the app has loaded an extension for HTTP."""
    return _base() is not None


def takes(python_type: object, *, is_output: bool) -> bool | None:
    """Whether an annotation is a type of the web framework; None if the app uses none."""
    base = _base()
    if base is None:
        return None
    tracker = base.ResponseTrackerMeta if is_output else base.RequestTrackerMeta
    return bool(tracker.check_type(python_type))


class WebExtension:
    """The extension that an app has loaded."""

    def __init__(self, base: Any, max_request_bytes: int) -> None:
        self._synchronizer = base.RequestTrackerMeta.get_synchronizer()
        self._max_request_bytes = max_request_bytes
        application = sys.modules[base.ModuleTrackerMeta.get_module()].WebApp()

        async def answer(request: Any) -> Any:
            return await request.scope[_INVOKE](request)

        # The framework passes its request to the parameter with this annotation.
        answer.__annotations__ = {"request": base.RequestTrackerMeta.get_request_type()}
        application.route(answer)
        self._application = cast("AsgiApp", application.get_app())

    @classmethod
    def find(cls, max_request_bytes: int) -> Self | None:
        """The extension that the app has loaded, or None; the argument limits request bodies."""
        base = _base()
        return None if base is None else cls(base, max_request_bytes)

    async def respond(
        self, request: web.Request, parameters: dict[str, str], invoke: Invoke
    ) -> web.StreamResponse:
        """Respond to a request by a function, given the parameters of the route.

        Raises:
            Exception: the framework failed before it sent any of the response.
        """

        async def invoke_with_parameters(native: Any) -> Any:
            self._synchronizer.sync_route_params(native, parameters)
            return await invoke(native)

        bridge = AsgiBridge(request, self._max_request_bytes)
        return await bridge.respond(self._application, **{_INVOKE: invoke_with_parameters})
