"""host.json's limits on HTTP requests: so many run at a time, so many wait, the rest get 429.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook#hostjson-settings
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from localazure.functions import logs
from localazure.functions.configuration.host_json import HttpOptions

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.http")

# Told to the platform's front end by the real host: start another instance.
SCALE_OUT_HEADER: Final = "X-FUNCTION-SCALEOUT"


class HttpThrottle:
    """Requests at work and waiting."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._outstanding = 0
        self._free = (
            contextlib.nullcontext()
            if options.max_concurrent_requests is None
            else asyncio.Semaphore(options.max_concurrent_requests)
        )

    @web.middleware
    async def middleware(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Holds or refuses what is too much.

        The admin API is not limited, nor are durable clients, which on Azure have a port of
        their own.
        """
        if request.path.startswith(("/admin/", "/durabletask/")):
            return await handler(request)
        limit = self._options.max_outstanding_requests
        if limit is not None and self._outstanding >= limit:
            _LOG.info("Http request queue limit of %d has been exceeded.", limit)
            return web.Response(status=429, headers={SCALE_OUT_HEADER: "1"})
        self._outstanding += 1
        try:
            async with self._free:
                return await handler(request)
        finally:
            self._outstanding -= 1
