"""Composes the Event Grid part: store, broker, server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

import aiohttp
from aiohttp import web
from azure.storage.blob.aio import BlobServiceClient

from localazure.eventgrid.broker import Broker
from localazure.eventgrid.configuration import load
from localazure.eventgrid.server import Server
from localazure.eventgrid.store import Store
from localazure.runtime.environment import LOOPBACK, Environment

SHUTDOWN_TIMEOUT_SECONDS = 5.0


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve Event Grid on `ports.event_grid` of loopback.

    Raises:
        ConfigurationError: `event-grid.json` is not valid.
        OSError: the port is taken.
    """
    configuration = load(environment)
    async with contextlib.AsyncExitStack() as stack:
        store = Store(environment.part_folder("eventgrid") / "events.db")
        stack.callback(store.close)
        # A connection an attempt: an idle one may be closed by a receiver just when it is used,
        # and that would count as a failed attempt.
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )
        blobs = await stack.enter_async_context(
            # The worker tries again by itself.
            BlobServiceClient.from_connection_string(
                environment.storage_connection_string(), retry_total=0
            )
        )
        broker = Broker(environment, configuration, store, session, blobs)
        await broker.start()
        stack.push_async_callback(broker.stop)
        application = Server(broker, environment.keys.event_grid).application()
        runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_SECONDS
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, LOOPBACK, environment.ports.event_grid).start()
        yield
