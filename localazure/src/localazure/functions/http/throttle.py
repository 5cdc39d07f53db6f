"""Refuses requests over the limits of host.json (429), and over those of the real host's server.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook#hostjson-settings
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure import limits
from localazure.functions import logs

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.http")

# With this header the real host asks the platform's front end for another instance.
SCALE_OUT_HEADER: Final = "X-FUNCTION-SCALEOUT"


class HttpThrottle:
    """Delays or refuses requests above the limits; None means no limit."""

    def __init__(self, *, max_outstanding: int | None, max_concurrent: int | None) -> None:
        self._max_outstanding = max_outstanding
        self._outstanding = 0
        self._free = (
            contextlib.nullcontext()
            if max_concurrent is None
            else asyncio.Semaphore(max_concurrent)
        )

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Delay requests above `max_concurrent`; refuse requests above `max_outstanding`.

        The admin API and durable clients are not limited: on Azure they have their own port.
        """
        if request.path.startswith(("/admin/", "/durabletask/")):
            return await handler(request)
        limit = self._max_outstanding
        if limit is not None and self._outstanding >= limit:
            _LOG.info("Http request queue limit of %d has been exceeded.", limit)
            return web.Response(status=429, headers={SCALE_OUT_HEADER: "1"})
        self._outstanding += 1
        try:
            async with self._free:
                return await handler(request)
        finally:
            self._outstanding -= 1


# For longer lines aiohttp's parser responds with 400 before any of this host's code runs.
PARSER_LIMIT_BYTES: Final = 256 * 1024


@web.middleware
async def refuse_oversized(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Respond with 414 if the URL, and with 431 if the headers are too long."""
    _, _, query = request.raw_path.partition("?")
    if len(request.raw_path) > limits.FUNCTIONS_URL.value:
        return web.Response(status=414, text=f"the URL is longer than {limits.FUNCTIONS_URL.value}")
    if len(query) > limits.FUNCTIONS_QUERY.value:
        longest = limits.FUNCTIONS_QUERY.value
        return web.Response(status=414, text=f"the query string is longer than {longest}")
    header_bytes = sum(len(name) + len(value) + 4 for name, value in request.raw_headers)
    if header_bytes > limits.FUNCTIONS_HEADERS.value:
        return web.Response(status=431)
    return await handler(request)
