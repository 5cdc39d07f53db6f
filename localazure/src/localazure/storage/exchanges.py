"""Small requests to Azurite, each sent in one piece over persistent connections.

Requests that raise events use it: aiohttp's client would cost more than everything else that the
proxy does for them. Messages are parsed by httptools. https://www.rfc-editor.org/rfc/rfc9112
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httptools
from multidict import CIMultiDict

from localazure.runtime.environment import LOOPBACK
from localazure.storage.azurite_process import KEEP_ALIVE_SECONDS

CONNECT_TIMEOUT_SECONDS = 10.0
# Shorter than Azurite's timeout, so that no request uses a connection that Azurite closes.
IDLE_SECONDS = KEEP_ALIVE_SECONDS / 2


class ExchangeFailed(Exception):
    """Azurite cannot be reached, ended the connection, or its answer is not HTTP."""


@dataclass
class Answer:
    """A whole response.

    Attributes:
        status: the HTTP status.
        reason: the HTTP reason phrase.
        headers: all headers, with hop-by-hop ones.
        content: the body, without its transfer coding.
    """

    status: int = 0
    reason: str = ""
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict[str])
    content: bytes = b""


class Exchanges:
    """The connections to one of Azurite's services.

    Args:
        port: the service's port, on loopback.

    Attributes:
        origin: the service's origin, `http://127.0.0.1:PORT`.
    """

    def __init__(self, port: int) -> None:
        self.origin = f"http://{LOOPBACK}:{port}"
        self._port = port
        self._idle: list[_Connection] = []

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        """Send a request and return its response.

        Args:
            method: any but HEAD, whose response gives a length but has no body.
            target: path and query, percent-encoded.
            headers: all headers but hop-by-hop ones; with `Content-Length` if there is a body.
            body: the body, if any.

        Raises:
            ExchangeFailed: there is no response; the request may have taken place.
        """
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "\r\n"]).encode("utf-8", "surrogateescape")
        connection = self._newest() or await self._connect()
        try:
            answer = await connection.send(head + (body or b""))
        except BaseException:
            connection.close()
            raise
        if connection.is_open() and connection.is_kept_alive:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _newest(self) -> _Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open() and now - connection.used_at < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(_Connection, LOOPBACK, self._port)
        except OSError as error:  # TimeoutError is one
            raise ExchangeFailed(f"Azurite cannot be reached: {error!r}") from error
        return connection


class _Connection(asyncio.Protocol):
    """A connection for one request at a time. The parser calls `on_...`.

    Attributes:
        used_at: the event loop's time at the end of the last response.
        is_kept_alive: whether that response allows another request.
    """

    def __init__(self) -> None:
        self.used_at = 0.0
        self.is_kept_alive = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"the connection ended: {exc!r}" if exc else "the connection ended")

    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def send(self, request: bytes) -> Answer:
        if self._transport is None:
            raise ExchangeFailed("Azurite gave no answer: the connection ended")
        self._parser = httptools.HttpResponseParser(self)
        self._answer = Answer()
        self._waiter = self._loop.create_future()
        self._transport.write(request)
        return await self._waiter

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # no request is waiting for it
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"it is not HTTP: {error}")
            self.close()

    def on_status(self, reason: bytes) -> None:
        self._answer.reason += reason.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._answer.headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_body(self, body: bytes) -> None:
        self._answer.content += body

    def on_message_complete(self) -> None:
        self.used_at = self._loop.time()
        self.is_kept_alive = self._parser.should_keep_alive()
        self._answer.status = self._parser.get_status_code()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(self._answer)

    def _fail(self, reason: str) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(ExchangeFailed(f"Azurite gave no answer: {reason}"))
