"""The HTTP servers of the parts, on loopback: what they accept, whatever they serve."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.http_parser import RawRequestMessage
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from localazure.runtime.environment import LOOPBACK
from localazure.runtime.web_pages import NONE, WebPages
from localazure.token_buckets import TokenBuckets

SHUTDOWN_SECONDS = 5.0
"""How long requests may continue when a part stops."""

# The first bytes of a TLS client (RFC 8446, section 5.1): a handshake, of any version.
_TLS_RECORD: Final = b"\x16\x03"

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def listening(
    runner: web.BaseRunner,
    ports: dict[int, ssl.SSLContext | None],
    *,
    pages: WebPages = NONE,
    reuse_port: bool = False,
) -> AsyncGenerator[None]:
    """Accept connections while the context lasts. At its end, wait for open requests.

    Args:
        runner: the runner of the application.
        ports: the TLS context of each port; None: no TLS.
        pages: the web pages from elsewhere that may call; the others get 403.
        reuse_port: whether several processes may listen on the same port.

    Raises:
        OSError: a port is in use.
    """
    await runner.setup()
    server = runner.server
    assert server is not None
    _guard(server, pages)
    told = TokenBuckets(1, 1 / 60, time.monotonic)
    listeners: list[asyncio.Server] = []
    try:
        for port, tls in ports.items():
            listener = await asyncio.get_running_loop().create_server(
                lambda: _FirstBytes(server(), told),
                LOOPBACK,
                port,
                ssl=tls,
                reuse_port=reuse_port or None,
                backlog=128,
            )
            listeners.append(listener)
        yield
    finally:
        for listener in listeners:
            listener.close()
        await runner.cleanup()


def runner_of(
    application: web.Application, shutdown_seconds: float = SHUTDOWN_SECONDS, **options: Any
) -> web.AppRunner:
    """Return a runner without an access log, which would show keys and signatures in URLs.

    Args:
        application: the application.
        shutdown_seconds: how long requests may continue at the end.
        options: of the server, such as `max_line_size`.
    """
    return web.AppRunner(application, access_log=None, shutdown_timeout=shutdown_seconds, **options)


def _guard(server: web.Server, pages: WebPages) -> None:
    """Refuse web pages from elsewhere, and accept every form of a request target."""
    make, handle = server.request_factory, server.request_handler

    def make_request(message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
        return make(_to_origin_form(message), *rest)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        refusal = pages.refusal_of(request.method, request.headers)
        if refusal is not None:
            logger.warning("%s %r is refused: %s", request.method, request.path, refusal)
            response = web.Response(status=HTTPStatus.FORBIDDEN, text=refusal)
            # The connection cannot be reused: the rest of the body is not read.
            response.force_close()
            return response
        if request.raw_path == "*":  # is the server there? RFC 9110, section 9.3.7
            return web.Response()
        return await handle(request)

    server.request_factory, server.request_handler = make_request, answer


def _to_origin_form(message: RawRequestMessage) -> RawRequestMessage:
    """Translate a target that is a whole URL, which every server must accept.

    Its authority counts, and not the header `Host` (RFC 9112, section 3.2.2).
    """
    if not message.url.absolute or message.method == hdrs.METH_CONNECT:
        return message
    authority = message.path.partition("://")[2].partition("/")[0].partition("?")[0]
    target = message.path.partition("://")[2].removeprefix(authority)
    if not target.startswith("/"):
        target = f"/{target}"
    path, _, query = target.partition("?")
    headers = CIMultiDict(message.headers)
    headers[hdrs.HOST] = authority.rpartition("@")[2]
    return message._replace(
        path=target,
        url=URL.build(path=path, query_string=query, encoded=True),
        headers=CIMultiDictProxy(headers),
    )


class _FirstBytes(asyncio.Protocol):
    """Tells of a client that speaks TLS to a port without it, which gets a 400 that it hides."""

    def __init__(self, handler: asyncio.Protocol, told: TokenBuckets) -> None:
        self._handler = handler
        self._told = told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._handler.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._transport.set_protocol(self._handler)
        peer = self._transport.get_extra_info("peername") or ("",)
        if data.startswith(_TLS_RECORD) and not self._told.take(peer[0]):
            port = self._transport.get_extra_info("sockname")[1]
            logger.warning("%s speaks TLS to port %s: use http://, not https://", peer[0], port)
        self._handler.data_received(data)

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)
