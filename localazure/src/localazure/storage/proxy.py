"""The reverse proxy in front of Azurite's services: forwards requests unchanged.

Paths stay percent-encoded as sent, bodies stream in both directions, `Host` and the signed headers
are unchanged, so that SharedKey and SAS signatures stay valid. The gate may refuse a request. The
ledger records a request that creates or deletes a blob before it is forwarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from http import HTTPStatus

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from localazure.faults.http import with_faults
from localazure.faults.injector import Injector
from localazure.runtime.http_server import SHUTDOWN_SECONDS
from localazure.storage import batch
from localazure.storage.actions import needed_for
from localazure.storage.azurite_process import KEEP_ALIVE_SECONDS, AzuriteProcess
from localazure.storage.blob_service import BlobServiceError
from localazure.storage.dfs_endpoint import DfsEndpoint, read_body
from localazure.storage.exchanges import ExchangeFailed, Exchanges
from localazure.storage.gate import Gate
from localazure.storage.host_style import names_account
from localazure.storage.ledger import Ledger
from localazure.storage.operations import Operation
from localazure.storage.refusal import NOT_AUTHENTIC, SERVER_BUSY, TOO_LARGE, Refusal
from localazure.storage_client.service import Service

logger = logging.getLogger(__name__)

# Hop-by-hop headers (RFC 9110, section 7.6.1). `Expect` is answered on this hop.
HOP_BY_HOP = frozenset(
    {
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

_BODILESS = {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}


# Called with a response before the client gets it. Returns the body if the call has read it.
OnAnswer = Callable[[aiohttp.ClientResponse], Awaitable[bytes | None]]


class Proxy:
    """The proxy of one service.

    Args:
        service: the service behind the proxy.
        session: connections to Azurite for bodies that are streamed; see `connections`.
        exchanges: connections to Azurite for whole requests that raise events.
        azurite: the process behind the proxy.
        gate: decides which requests are forwarded.
        ledger: the Blob service's ledger; None for other services, which emit no events.
        faults: the injected faults of the plan.
        dfs: answers the Blob service's requests about files and directories.
    """

    def __init__(
        self,
        service: Service,
        session: aiohttp.ClientSession,
        exchanges: Exchanges,
        *,
        azurite: AzuriteProcess,
        gate: Gate,
        ledger: Ledger | None,
        faults: Injector,
        dfs: DfsEndpoint | None = None,
    ) -> None:
        self._dfs = dfs
        self._service = service
        self._session = session
        self._exchanges = exchanges
        self._azurite = azurite
        self._gate = gate
        self._ledger = ledger
        self._faults = faults

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
            return await with_faults(
                self._faults,
                f"{self._service}/{needed.action}",
                request,
                lambda: self._answer(request),
                lambda rule: self._refuse(replace(SERVER_BUSY, status=HTTPStatus(rule.status))),
            )
        except (TimeoutError, aiohttp.ClientError, BlobServiceError, ExchangeFailed) as error:
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
        if self._dfs is not None and (answer := await self._dfs.answer(request)) is not None:
            return answer
        ledger = self._ledger
        if ledger is not None and self._gate.emits_events(request.raw_path):
            if batch.is_batch(request.method, request.raw_path):
                return await self._forward_batch(request, ledger)
            operation = Operation.classify(request.method, request.raw_path, request.headers)
            if operation is not None:
                return await self._forward_operation(request, operation, ledger)
        return await self._forward(request, await _Body.of(request))

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

    async def _forward_operation(
        self, request: web.BaseRequest, operation: Operation, ledger: Ledger
    ) -> web.StreamResponse:
        body = await _Body.of(request)
        (intent,) = await ledger.open([operation])
        settled = False

        async def record(status: int, headers: Mapping[str, str]) -> None:
            nonlocal settled
            if operation.succeeded(status, headers):
                await ledger.close(intent, request.headers, headers, body.size)
            else:
                ledger.settle([(intent, None)])
            settled = True

        async def on_answer(answer: aiohttp.ClientResponse) -> None:
            await record(answer.status, answer.headers)

        try:
            if not isinstance(body.data, bytes | None):
                return await self._forward(request, body, on_answer)
            answer = await self._exchanges.exchange(
                request.method, request.raw_path, request[HEADERS], body.data
            )
            await record(answer.status, answer.headers)
            return self._refusal_in(request, answer.headers) or web.Response(
                status=answer.status,
                reason=answer.reason,
                headers=_end_to_end(answer.headers),
                body=answer.content,
            )
        finally:
            if not settled:
                ledger.reconcile_later([intent])

    async def _forward_batch(self, request: web.BaseRequest, ledger: Ledger) -> web.StreamResponse:
        content = await read_body(request, batch.MAX_BATCH_BYTES)
        if content is None:
            return self._refuse(TOO_LARGE)
        deletions = batch.deletions(request.headers.get("Content-Type", ""), content)
        intents = dict(zip(deletions, await ledger.open(list(deletions.values())), strict=True))
        settled = False

        async def on_answer(answer: aiohttp.ClientResponse) -> bytes | None:
            nonlocal settled
            content_type = answer.headers.get("Content-Type", "")
            statuses = batch.statuses(content_type, content := await answer.read())
            ledger.settle(
                [
                    (
                        intent,
                        ledger.event(intent, intent.before, answer.headers)
                        if intent.operation.succeeded(statuses.get(content_id, 0), {})
                        else None,
                    )
                    for content_id, intent in intents.items()
                ]
            )
            settled = True
            return content

        try:
            return await self._forward(request, _Body(content), on_answer)
        finally:
            if not settled:
                ledger.reconcile_later(list(intents.values()))

    async def _forward(
        self, request: web.BaseRequest, body: _Body, on_answer: OnAnswer | None = None
    ) -> web.StreamResponse:
        """Forward the request and its response.

        Raises:
            aiohttp.ClientError: Azurite did not respond; nothing was sent to the client.
        """
        async with self._session.request(
            request.method,
            URL(self._exchanges.origin + request.raw_path, encoded=True),
            headers=request[HEADERS],
            data=body.data,
            allow_redirects=False,
            skip_auto_headers=AUTOMATIC_HEADERS,
        ) as answer:
            content = await on_answer(answer) if on_answer is not None else None
            return self._refusal_in(request, answer.headers) or await _answer(
                request, answer, content
            )

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


class _Body:
    """A request's body: a small one in one piece, a large one as a stream that counts bytes.

    Attributes:
        data: the body for aiohttp; None sends no body.
        size: number of bytes so far.
    """

    def __init__(self, data: bytes | web.BaseRequest | None) -> None:
        self.size = len(data) if isinstance(data, bytes) else 0
        self.data = self._stream(data) if isinstance(data, web.BaseRequest) else data

    @classmethod
    async def of(cls, request: web.BaseRequest) -> _Body:
        if not request.body_exists:
            return cls(None)
        length = request.content_length
        if length is not None and length <= SMALL_BODY_BYTES:
            return cls(await request.content.readexactly(length))
        return cls(request)

    async def _stream(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        async for piece in request.content.iter_any():
            self.size += len(piece)
            yield piece


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


async def _answer(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, content: bytes | None
) -> web.StreamResponse:
    """Pass Azurite's response to the client. `content` is the body if it was read already."""
    headers = _end_to_end(answer.headers)
    length = answer.content_length
    bodiless = request.method == "HEAD" or answer.status in _BODILESS
    if not bodiless and content is None and length is not None and length <= SMALL_BODY_BYTES:
        content = await answer.read()
    if content is not None:
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
