"""host.json's limits on HTTP requests: at most N run, at most M are outstanding, others get 429.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook#hostjson-settings
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure.functions import logs

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.http")

# With it the real host asks the platform's front end for another instance.
SCALE_OUT_HEADER: Final = "X-FUNCTION-SCALEOUT"


class HttpThrottle:
    """Counts requests, and delays or refuses those above the limits; None is no limit."""

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
        """Delays or refuses requests above the limits.

        The admin API and durable clients are not limited: on Azure they have a port of their own.
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
