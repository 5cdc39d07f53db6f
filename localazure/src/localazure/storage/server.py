"""The reverse proxy in front of Azurite's services: forwards requests unchanged.

Paths stay percent-encoded as sent, bodies stream in both directions, `Host` and the signed headers
are unchanged, so that SharedKey and SAS signatures stay valid. The gate may refuse a request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from localazure.faults.http import handle_with_faults
from localazure.faults.injector import Injector
from localazure.runtime.http_server import SHUTDOWN_SECONDS
from localazure.storage.actions import needed_for
from localazure.storage.authorization import Gate
from localazure.storage.azurite_process import KEEP_ALIVE_SECONDS, AzuriteProcess
from localazure.storage.dfs_endpoint import DfsEndpoint
from localazure.storage.hierarchy import EVENT_HEADER
from localazure.storage.host_style import names_account
from localazure.storage.refusal import NOT_AUTHENTIC, SERVER_BUSY, Refusal
from localazure.storage_client.endpoint import Service

logger = logging.getLogger(__name__)

# Hop-by-hop headers (RFC 9110, section 7.6.1). `Expect` is answered on this hop. Clients do not
# choose their events.
HOP_BY_HOP = frozenset(
    {
        EVENT_HEADER,
        "connection",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Headers that aiohttp would add.
AUTOMATIC_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# Bodies up to this size are forwarded in one piece, which saves writes to the socket.
SMALL_BODY_BYTES = 64 * 1024
# Metadata alone may have 8 KiB; a SAS URL of a long blob name may have several KiB.
MAX_HEADER_BYTES = 64 * 1024
# Time that a request waits for Azurite to restart.
AZURITE_TIMEOUT_SECONDS = 30.0
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)

# The headers to forward a request with.
HEADERS = web.RequestKey("headers", CIMultiDict[str])

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


class Proxy:
    """The proxy of one service.

    Args:
        service: the service behind the proxy.
        session: connections to Azurite; see `connections`.
        origin: that of the service behind the proxy, `http://127.0.0.1:PORT`.
        azurite: the process behind the proxy.
        gate: decides which requests are forwarded.
        faults: the injected faults of the plan.
        dfs: answers the Blob service's requests about files and directories.
        on_change: called when a request may have changed something.
    """

    def __init__(
        self,
        service: Service,
        session: aiohttp.ClientSession,
        origin: str,
        *,
        azurite: AzuriteProcess,
        gate: Gate,
        faults: Injector,
        dfs: DfsEndpoint | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        self._dfs = dfs
        self._service = service
        self._session = session
        self._origin = origin
        self._azurite = azurite
        self._gate = gate
        self._faults = faults
        self._on_change = on_change

    def runner(self, *, is_host_style: bool = False) -> web.ServerRunner:
        """Return the runner of the HTTP server.

        Args:
            is_host_style: whether paths begin with the container, whatever the header `Host` is.
        """

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            if is_host_style or names_account(request.host):
                translated = self._gate.to_path_style(
                    request.method, request.raw_path, CIMultiDict(request.headers)
                )
                if isinstance(translated, Refusal):
                    return self._refuse(translated)
                url = URL(translated.target, encoded=True)
                request = request.clone(rel_url=url, headers=translated.headers)
            return await self._handle(request)

        server = web.Server(
            handle,
            auto_decompress=False,
            access_log=None,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        return web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            admitted = self._gate.admit(
                self._service,
                request.method,
                request.raw_path,
                _end_to_end(request.headers),
                is_secure=request.secure,
            )
            if isinstance(admitted, Refusal):
                return self._refuse(admitted)
            request[HEADERS] = admitted
            needed, *_ = needed_for(
                self._service, request.method, request.raw_path, request.headers
            )
            return await handle_with_faults(
                self._faults,
                f"{self._service}/{needed.action}",
                request,
                lambda: self._answer(request),
                lambda rule: self._refuse(replace(SERVER_BUSY, status=HTTPStatus(rule.status))),
            )
        except (TimeoutError, aiohttp.ClientError) as error:
            logger.warning(
                "%s %s: %s: %s", request.method, request.path, type(error).__name__, error
            )
        except ConnectionError:
            logger.debug("%s %s: the client has disconnected", request.method, request.path)
        return self._refuse(SERVER_BUSY)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self._azurite.ready.is_set():
            await asyncio.wait_for(self._azurite.ready.wait(), AZURITE_TIMEOUT_SECONDS)
        await _continue(request)
        try:
            if self._dfs is not None and (answer := await self._dfs.answer(request)) is not None:
                return answer
            return await self._forward(request)
        finally:
            if self._on_change is not None and request.method not in _READS:
                self._on_change()

    def _refuse(self, refusal: Refusal) -> web.Response:
        content_type, text = refusal.body(self._service)
        response = web.Response(
            status=refusal.status,
            text=text,
            content_type=content_type,
            headers={"x-ms-error-code": refusal.code, **refusal.headers},
        )
        # The connection cannot be reused: the rest of the body is not read.
        response.force_close()
        return response

    async def _forward(self, request: web.BaseRequest) -> web.StreamResponse:
        """Forward the request and its response.

        Raises:
            aiohttp.ClientError: Azurite did not respond; nothing was sent to the client.
        """
        async with self._session.request(
            request.method,
            URL(self._origin + request.raw_path, encoded=True),
            headers=request[HEADERS],
            data=await _body(request),
            allow_redirects=False,
            skip_auto_headers=AUTOMATIC_HEADERS,
        ) as answer:
            return self._refusal_in(request, answer.headers) or await _answer(request, answer)

    def _refusal_in(
        self, request: web.BaseRequest, headers: Mapping[str, str]
    ) -> web.Response | None:
        """Azure's error for a wrong key: Azurite sends its error for a firewall."""
        code = headers.get("x-ms-error-code")
        if code == "CorsPreflightFailure":  # only web pages get it
            logger.warning(
                "%s %s is refused: a web page of %r sent this request: allow its origin by a CORS "
                "rule of the account (Set Service Properties)",
                request.method,
                request.path,
                request.headers.get("Origin"),
            )
        return self._refuse(NOT_AUTHENTIC) if code == "AuthorizationFailure" else None


def connections() -> aiohttp.ClientSession:
    """A session that forwards requests and responses unchanged."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS / 2),
        timeout=NO_TIMEOUT,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        requote_redirect_url=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )


async def _body(request: web.BaseRequest) -> bytes | aiohttp.StreamReader | None:
    """A request's body: a small one in one piece, a large one as a stream."""
    if not request.body_exists:
        return None
    length = request.content_length
    if length is not None and length <= SMALL_BODY_BYTES:
        return await request.content.readexactly(length)
    return request.content


async def _continue(request: web.BaseRequest) -> None:
    """Send 100 Continue to a client that waits for it (RFC 9110, section 10.1.1)."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # It is not part of the response, whose size decides whether an error can still be sent.
        request.writer.output_size = 0


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP
    )


async def _answer(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass Azurite's response to the client."""
    headers = _end_to_end(answer.headers)
    length = answer.content_length
    bodiless = request.method == "HEAD" or answer.status in _BODILESS
    if not bodiless and length is not None and length <= SMALL_BODY_BYTES:
        content = await answer.read()
        return web.Response(
            status=answer.status, reason=answer.reason, headers=headers, body=content
        )
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    if length is None and not bodiless:
        response.enable_chunked_encoding()
    await response.prepare(request)
    if not bodiless:
        try:
            async for piece in answer.content.iter_any():
                await response.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            # The status was sent, so only a broken connection can show that the body is incomplete.
            logger.warning(
                "%s %s: the response ended early: %s", request.method, request.path, error
            )
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from error
    await response.write_eof()
    return response
