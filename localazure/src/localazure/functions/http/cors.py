"""Cross-origin requests: the origins from which a browser may call this host.

CORS is off unless local.settings.json or the command line names origins, as in `func`. On Azure the
platform handles CORS in front of the host.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-develop-local#local-settings-file,
https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure.runtime.web_pages import ANY_ORIGIN, WebPages

_REQUEST_METHOD: Final = "Access-Control-Request-Method"


@dataclass(frozen=True)
class CorsPolicy:
    """Origins that may call, with any method and any header."""

    origins: frozenset[str] = frozenset()
    """The allowed origins; `*` allows all."""
    allows_credentials: bool = False

    @classmethod
    def parse(cls, origins: str, *, allows_credentials: bool) -> Self:
        """Parse the comma-separated list of origins that `func` takes.

        Raises:
            ValueError: `*` with credentials, which browsers refuse.
        """
        parsed = frozenset(one.strip().rstrip("/") for one in origins.split(",") if one.strip())
        if ANY_ORIGIN in parsed and allows_credentials:
            raise ValueError("CORS with credentials needs origins by name, not *")
        return cls(parsed, allows_credentials)

    def headers(self, method: str, request: Mapping[str, str]) -> dict[str, str]:
        """The response's CORS headers for a request; empty for an origin that is not allowed."""
        origin = request.get("Origin")
        if origin is None or not self.origins & {origin, ANY_ORIGIN}:
            return {}
        allowed = ANY_ORIGIN if ANY_ORIGIN in self.origins else origin
        headers = {"Access-Control-Allow-Origin": allowed}
        if allowed != ANY_ORIGIN:
            headers["Vary"] = "Origin"
        if self.allows_credentials:
            headers["Access-Control-Allow-Credentials"] = "true"
        if _is_preflight(method, request):
            headers["Access-Control-Allow-Methods"] = request[_REQUEST_METHOD]
            if requested := request.get("Access-Control-Request-Headers"):
                headers["Access-Control-Allow-Headers"] = requested
        return headers

    @property
    def pages(self) -> WebPages:
        """The web pages that may call."""
        how = "name its origin in Host.CORS of local.settings.json, or with --cors"
        return WebPages(self.origins, remedy=how)

    @web.middleware
    async def answer_preflight(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Respond to preflight requests without calling a function."""
        if self.origins and _is_preflight(request.method, request.headers):
            return web.Response(status=204)
        return await handler(request)

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers that let a web page read the response."""
        response.headers.update(self.headers(request.method, request.headers))


def _is_preflight(method: str, headers: Mapping[str, str]) -> bool:
    return method == "OPTIONS" and "Origin" in headers and _REQUEST_METHOD in headers
