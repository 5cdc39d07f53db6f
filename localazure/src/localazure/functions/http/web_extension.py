"""HTTP functions written for a web framework: `azurefunctions.extensions.http.fastapi`.

An app that imports the extension is given the framework's own requests and may return its
responses, streamed both ways, in all of its HTTP functions. The real worker starts a web server for
that, to which the host forwards; here the extension's application is called in the process.

Nothing here imports the extension: an app that uses it has.

Source: https://github.com/Azure/azure-functions-python-worker (http_v2)
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, Self, cast

from aiohttp import web

from localazure.functions.http.asgi_bridge import AsgiApp, AsgiBridge

NATIVE: Final = "native"
"""Type of a Datum that holds a request of the framework, or whatever a function returned."""

_BASE: Final = "azurefunctions.extensions.base"
_INVOKE: Final = "localazure.functions.invoke"

Invoke = Callable[[Any], Awaitable[Any]]
"""Runs the function on a request of the framework; gives what it returned."""


def _base() -> Any:
    """The extensions' base, if the app has loaded one for HTTP."""
    base = sys.modules.get(_BASE)
    return base if base is not None and base.HttpV2FeatureChecker.http_v2_enabled() else None


def takes(python_type: object, *, is_output: bool) -> bool | None:
    """Whether an annotation is of the framework's; None where the app has no such framework."""
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

        # The framework injects its request by this annotation.
        answer.__annotations__ = {"request": base.RequestTrackerMeta.get_request_type()}
        application.route(answer)
        self._application = cast("AsgiApp", application.get_app())

    @classmethod
    def find(cls, max_request_bytes: int) -> Self | None:
        """The one that is loaded, if any; it takes bodies up to this size."""
        base = _base()
        return None if base is None else cls(base, max_request_bytes)

    async def respond(
        self, request: web.Request, parameters: dict[str, str], invoke: Invoke
    ) -> web.StreamResponse:
        """Have a function answer a request, given the parameters of the route.

        Raises:
            Exception: the framework failed before it answered anything.
        """

        async def invoke_with_parameters(native: Any) -> Any:
            self._synchronizer.sync_route_params(native, parameters)
            return await invoke(native)

        bridge = AsgiBridge(request, self._max_request_bytes)
        return await bridge.respond(self._application, **{_INVOKE: invoke_with_parameters})
