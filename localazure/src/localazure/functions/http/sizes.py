"""Refuses requests over the limits of the real host's server."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from localazure import limits

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
