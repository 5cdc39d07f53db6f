"""Passes an aiohttp request to an ASGI application, streaming in both directions.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from aiohttp import web

from localazure.functions import logs

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.http")

Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]

# The server sets these headers itself, or they apply to this hop only.
_NOT_PASSED_ON: Final = frozenset({b"content-length", b"transfer-encoding", b"connection"})


class AsgiBridge:
    """One request to an ASGI application, and its response."""

    def __init__(self, request: web.Request, max_request_bytes: int) -> None:
        self._request = request
        self._bytes_left = max_request_bytes
        self._is_read = False
        self._is_over = asyncio.Event()
        self._response: web.StreamResponse | None = None
        self._is_sent = False

    async def respond(self, application: AsgiApp, **extra: Any) -> web.StreamResponse:
        """Run the application on the request, with `extra` added to its scope.

        If the body exceeds the limit, the application's read fails and the response is 413.

        Raises:
            Exception: the application failed before it sent any of the response.
        """
        try:
            await application({**self._scope(), **extra}, self._receive, self._send)
        except Exception as error:
            if self._response is None:
                raise
            # The client has got the framework's error page; the invoker has logged the failure.
            if not self._is_sent:
                _LOG.error("a response failed while it was streamed: %r", error)
                if self._request.transport is not None:
                    self._request.transport.close()  # without an end, so that the client notices
        finally:
            self._is_over.set()
        if self._response is None:
            raise RuntimeError("the application ended without an answer")
        return self._response

    def _scope(self) -> dict[str, Any]:
        request = self._request
        peer = request.transport.get_extra_info("peername") if request.transport else None
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": f"{request.version.major}.{request.version.minor}",
            "method": request.method,
            "scheme": request.scheme,
            "path": request.path,
            "raw_path": request.rel_url.raw_path.encode(),
            "query_string": request.rel_url.raw_query_string.encode(),
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.raw_headers],
            "client": tuple(peer[:2]) if peer else None,
            "server": (request.url.host, request.url.port),
        }

    async def _receive(self) -> Message:
        if self._is_read:
            await self._is_over.wait()
            return {"type": "http.disconnect"}
        chunk = await self._request.content.readany()
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            raise ValueError("the body of the request is over the limit")
        self._is_read = self._request.content.at_eof()
        return {"type": "http.request", "body": chunk, "more_body": not self._is_read}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            is_too_large = self._bytes_left < 0
            self._response = web.StreamResponse(status=413 if is_too_large else message["status"])
            for name, value in message.get("headers", ()):
                if bytes(name).lower() not in _NOT_PASSED_ON:
                    self._response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
            await self._response.prepare(self._request)
            return
        assert self._response is not None
        # What follows the headers of an answer to HEAD would be read as the next answer.
        if (body := message.get("body")) and self._request.method != "HEAD":
            await self._response.write(body)
        if not message.get("more_body"):
            self._is_sent = True
            await self._response.write_eof()
