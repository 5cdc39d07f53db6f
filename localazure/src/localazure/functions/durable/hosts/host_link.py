"""The host's side: runs functions for the engine, and passes requests of clients on to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import WSMsgType, hdrs, web
from multidict import CIMultiDict
from yarl import URL

from localazure.errors import StartError
from localazure.functions import logs
from localazure.functions.durable.api.http_api import OpensWebhook, key_of
from localazure.functions.durable.api.links import RPC_PATH, WEBHOOK_PATH
from localazure.functions.durable.app_description import AppDescription
from localazure.functions.durable.engine.invocation import FunctionFailed
from localazure.functions.durable.hosts import HOSTS_PATH
from localazure.functions.durable.runtime import work_queue
from localazure.processes.background import cancel, keep_doing

# An engine that was killed is back within a second or two.
RECONNECT_SECONDS: Final = 0.05
_ENGINE: Final = "http://engine"
# Of one connection only (RFC 9110, section 7.6.1).
_HOP_BY_HOP: Final = (hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.TRANSFER_ENCODING, hdrs.UPGRADE)
# Of a body that is read, and decoded, before it is passed on.
_OF_BODY: Final = (hdrs.CONTENT_LENGTH, hdrs.CONTENT_ENCODING, hdrs.EXPECT)


class HostLink:
    """One host's connection to the engine that it shares with others.

    Args:
        app: the host's app.
        address: the engine's Unix socket.
        opens_webhook: returns whether a key gives access to the management API.
        invoke: runs a function, as the engine's `Invoke`, with the text of its trigger.
    """

    def __init__(
        self,
        app: AppDescription,
        *,
        address: Path,
        opens_webhook: OpensWebhook,
        invoke: Callable[[str, str], Awaitable[str | None]],
    ) -> None:
        self._app = app
        self._address = address
        self._opens_webhook = opens_webhook
        self._invoke = invoke
        self._client_binding = ""
        self._is_connected = asyncio.Event()
        self._is_leaving = False
        self._running: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None

    def routes(self) -> list[web.RouteDef]:
        """The routes of `DurableExtension`, whose requests go to the engine."""
        return [
            web.route("*", RPC_PATH + r"/{path:[\s\S]*}", self._pass_on),
            web.route("*", WEBHOOK_PATH + r"/{path:[\s\S]*}", self._pass_on_with_key),
        ]

    def client_binding(self) -> str:
        """The JSON value of a durableClient input binding."""
        return self._client_binding

    async def start(self) -> None:
        """Connect to the engine, which may still be starting, and run functions for it.

        Raises:
            StartError: the engine refuses; says why.
        """
        self._http = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(
                str(self._address),
                limit=0,
                force_close=True,  # a reused connection may end within a request
            ),
            timeout=aiohttp.ClientTimeout(),
            auto_decompress=False,
        )
        try:
            self._socket = await self._connect()
        except BaseException:
            await self._http.close()
            raise
        self._serving = asyncio.create_task(self._serve())

    async def stop(self, drain_seconds: float) -> None:
        """Take no further calls, wait up to `drain_seconds` for running ones, and disconnect."""
        if self._serving is None:
            return
        self._is_leaving = True
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await self._socket.send_json(None)
        await work_queue.drain(self._running, drain_seconds)
        await self._socket.close()  # returns when the engine has read all answers
        await cancel(self._serving)
        await self._http.close()

    # --- functions -----------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            while (message := await self._socket.receive()).type is WSMsgType.TEXT:
                if not self._is_leaving:
                    task = asyncio.create_task(self._run(self._socket, *json.loads(message.data)))
                    self._running.add(task)
                    task.add_done_callback(self._running.discard)
            self._is_connected.clear()
            if self._is_leaving:
                return
            # Others do now what this host has not ended.
            await cancel(*self._running)
            self._socket = await keep_doing("connecting to the engine", self._connect)

    async def _connect(self) -> aiohttp.ClientWebSocketResponse:
        while True:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                socket = await self._http.ws_connect(_ENGINE + HOSTS_PATH, max_msg_size=0)
                await socket.send_str(self._app.model_dump_json(by_alias=True))
                reply = await socket.receive()
                if reply.type is WSMsgType.TEXT:
                    break
                await socket.close()
            await asyncio.sleep(RECONNECT_SECONDS)
        answer: dict[str, str] = json.loads(reply.data)
        if "refusal" in answer:
            await socket.close()
            raise StartError(answer["refusal"])
        self._client_binding = answer["clientBinding"]
        self._is_connected.set()
        return socket

    async def _run(
        self,
        socket: aiohttp.ClientWebSocketResponse,
        token: str,
        name: str,
        instance_id: str | None,
        trigger: str,
    ) -> None:
        """Run a function. If the connection has ended by then, so has the call, for this host."""
        result = failure = None
        try:
            with logs.working_for(instance_id) if instance_id else contextlib.nullcontext():
                result = await self._invoke(name, trigger)
        except FunctionFailed as error:
            failure = (error.type_name, error.message, error.stack)
        with contextlib.suppress(aiohttp.ClientError, ConnectionError):
            await socket.send_json([token, result, failure])

    # --- clients -------------------------------------------------------------------------------

    async def _pass_on_with_key(self, request: web.Request) -> web.StreamResponse:
        if not self._opens_webhook(key_of(request)):
            return web.Response(status=401)
        return await self._pass_on(request)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on to the engine, and its response back.

        If the engine ends meanwhile, the next one gets the request, unless it may have had an
        effect that a repetition would double.
        """
        body = await request.read()
        while True:
            await self._is_connected.wait()
            response = web.StreamResponse()
            try:
                return await self._exchange(request, body, response)
            except aiohttp.ClientConnectionError as error:
                if response.prepared:
                    raise
                is_sent = not isinstance(error, aiohttp.ClientConnectorError)
                if is_sent and request.method != hdrs.METH_GET:
                    text = "the engine ended, and nobody knows whether it had done this before"
                    return web.Response(status=503, text=text, headers={"Retry-After": "1"})
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _exchange(
        self, request: web.Request, body: bytes, response: web.StreamResponse
    ) -> web.StreamResponse:
        async with self._http.request(
            request.method,
            URL(f"{_ENGINE}{request.raw_path}", encoded=True),
            headers=_without(_HOP_BY_HOP + _OF_BODY, request.headers),
            skip_auto_headers=(hdrs.ACCEPT, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
            data=body or None,
            allow_redirects=False,
        ) as reply:
            response.set_status(reply.status, reply.reason)
            response.headers.update(_without(_HOP_BY_HOP, reply.headers))
            await response.prepare(request)
            async for chunk in reply.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response


def _without(names: Sequence[str], headers: Mapping[str, str]) -> CIMultiDict[str]:
    kept = CIMultiDict(headers)
    for name in names:
        kept.popall(name, None)
    return kept
