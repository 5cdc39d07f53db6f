"""The engine's side: opens the task hub for the first host, and has all hosts run its functions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import WSMsgType, web

from localazure.errors import StartError
from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.functions import logs
from localazure.functions.durable.api.http_api import HttpApi
from localazure.functions.durable.app_description import AppDescription
from localazure.functions.durable.engine.invocation import FunctionFailed, Trigger
from localazure.functions.durable.extension import DurableExtension
from localazure.functions.durable.hosts import HOSTS_PATH
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.work_items import (
    ConnectedWorker,
    Key,
    WorkItem,
    WorkItems,
)
from localazure.processes.background import cancel
from localazure.runtime.http_server import runner_of

_logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 20.0
"""The pause between pings. A host that does not answer for half as long has lost its calls."""

_CLOSE_CONNECTIONS_SECONDS: Final = 1.0
_MOST_HEADER_BYTES: Final = 1024 * 1024  # more than a host accepts

# The limits of host.json by kind of function. Each host has them, and not the engine, whose runs
# include the calls that wait for a host.
_LIMITS: Final = {
    "orchestrator": "max_concurrent_orchestrator_functions",
    "activity": "max_concurrent_activity_functions",
    "entity": "max_concurrent_entity_functions",
}
_NO_LIMIT: Final = 1_000_000


@dataclass(eq=False, kw_only=True)
class _Call(WorkItem[ConnectedWorker]):
    """A function to call."""

    trigger: str
    instance_id: str | None

    def message(self, worker: ConnectedWorker, token: str) -> str:
        """The call as a host gets it."""
        del worker
        return json.dumps([token, self.key.name, self.instance_id, self.trigger])


class EngineServer:
    """The engine of one task hub, and the hosts that are connected to it.

    Args:
        database_path: the task hub's SQLite file, created if missing.
        faults: the folder of the fault plan.
        heartbeat_seconds: see `HEARTBEAT_SECONDS`.
    """

    def __init__(self, database_path: Path, faults: Path, heartbeat_seconds: float) -> None:
        self._database_path = database_path
        self._faults = Injector(faults, Part.FUNCTIONS)
        self._heartbeat_seconds = heartbeat_seconds
        self._hosts = WorkItems[ConnectedWorker]()
        self._app: AppDescription | None = None
        self._hub: DurableExtension | None = None
        self._kinds: dict[str, str] = {}  # of its functions
        self._opening = asyncio.Lock()

    def application(self) -> web.Application:
        """The WebSocket of hosts, and the management API, which connected hosts pass on."""
        application = web.Application(client_max_size=0)  # the hosts limit it
        application.router.add_get(HOSTS_PATH, self._serve_host)
        application.add_routes(HttpApi.routes(self._api))
        return application

    async def close(self) -> None:
        """End the connections, and close the task hub. Its work goes on at the next start."""
        self._hosts.close()
        if self._hub is not None:
            await self._hub.stop(0)

    def _api(self, _: web.Request) -> HttpApi:
        if self._hub is None:  # the host has not noticed yet that this engine is another one
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"})
        return self._hub.api

    async def _serve_host(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(
            heartbeat=self._heartbeat_seconds, compress=False, max_msg_size=0
        )
        await socket.prepare(request)
        hello = await socket.receive()
        if hello.type is WSMsgType.TEXT:
            app = AppDescription.model_validate_json(hello.data)
            try:
                async with self._opening:
                    hub = await self._open(app)
            except (StartError, sqlite3.Error) as error:
                await socket.send_json({"refusal": str(error)})
            else:
                await socket.send_json({"clientBinding": hub.client_binding()})
                await self._use(socket, app.options)
        return socket

    async def _open(self, app: AppDescription) -> DurableExtension:
        """Open the task hub, or return it.

        Raises:
            StartError: its file is in use, or damaged.
            sqlite3.Error: its file cannot be read.
        """
        if self._hub is None:
            unlimited = app.options.model_copy(update=dict.fromkeys(_LIMITS.values(), _NO_LIMIT))
            hub = DurableExtension(
                app.model_copy(update={"options": unlimited}),
                database_path=self._database_path,
                opens_webhook=lambda _: True,  # the host has checked it
                invoke=self._invoke,
                faults=self._faults,
            )
            self._kinds = {
                name.lower(): kind for kind, names in app.functions.items() for name in names
            }
            try:
                await hub.start()
            except BaseException:
                await hub.stop(0)
                raise
            self._app, self._hub = app, hub
        elif self._app and (app.functions, app.options) != (self._app.functions, self._app.options):
            _logger.warning(
                "a host has other functions or settings than the first one had: start localazure "
                "again to have all use them"
            )
        return self._hub

    async def _use(self, socket: web.WebSocketResponse, options: DurableOptions) -> None:
        """Have a host run functions as long as its connection lasts."""
        limits = {kind: getattr(options, limit) for kind, limit in _LIMITS.items()}
        host = self._hosts.connect(ConnectedWorker(limits))
        sending = asyncio.create_task(_send(host, socket))
        try:
            while (message := await socket.receive()).type is WSMsgType.TEXT:
                answer = json.loads(message.data)
                if answer is None:
                    host.is_leaving = True
                else:
                    token, *outcome = answer
                    self._hosts.complete(token, outcome)
        finally:
            self._hosts.disconnect(host)
            await cancel(sending)

    async def _invoke(self, name: str, trigger: Trigger) -> str | None:
        call = _Call(
            key=Key(self._kinds[name.lower()], name),
            trigger=trigger if isinstance(trigger, str) else trigger.body,
            instance_id=logs.instance_id.get(),
        )
        ((result, failure),) = await self._hosts.run(call)
        if failure is not None:
            raise FunctionFailed(*failure)
        return result


async def _send(host: ConnectedWorker, socket: web.WebSocketResponse) -> None:
    with contextlib.suppress(ConnectionError):  # the host has gone, as its reader notices
        while (message := await host.outbox.get()) is not None:
            await socket.send_str(message)
        await socket.close()


@contextlib.asynccontextmanager
async def serving(
    address: Path,
    database_path: Path,
    faults: Path,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> AsyncGenerator[None]:
    """Run the engine while the context lasts.

    Args:
        address: the Unix socket, in a folder that only this user may enter.
        database_path: see `EngineServer`, also for the others.
        faults: the folder of the fault plan.
        heartbeat_seconds: see `HEARTBEAT_SECONDS`.
    """
    engine = EngineServer(database_path, faults, heartbeat_seconds)
    runner = runner_of(
        engine.application(),
        shutdown_seconds=_CLOSE_CONNECTIONS_SECONDS,
        max_line_size=_MOST_HEADER_BYTES,
        max_field_size=_MOST_HEADER_BYTES,
    )
    await runner.setup()
    site = web.UnixSite(runner, str(address))
    try:
        await site.start()
        yield
        await site.stop()  # before the hosts, which connect again, notice the end
    finally:
        await engine.close()
        await runner.cleanup()
