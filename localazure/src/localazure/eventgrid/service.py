"""Composes the Event Grid part: store, router, server."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncGenerator

import aiohttp

from localazure.eventgrid.authorization import Identities
from localazure.eventgrid.configuration import load
from localazure.eventgrid.destination_clients import DestinationClients
from localazure.eventgrid.router import Router
from localazure.eventgrid.server import Server
from localazure.eventgrid.store import Store
from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.runtime.certificates import ensure_certificates, server_context
from localazure.runtime.environment import Environment
from localazure.runtime.http_server import listening, runner_of
from localazure.runtime.identity import EVENT_GRID_AUDIENCE, TokenIssuer
from localazure.runtime.roles import RoleAssignments


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve Event Grid on `ports.event_grid` of loopback, and over TLS.

    Raises:
        ConfigurationError: `event-grid.json` is not valid.
        OSError: the port is taken.
    """
    configuration = load(environment)
    certificates = ensure_certificates(environment)
    async with contextlib.AsyncExitStack() as stack:
        store = Store(environment.part_folder("eventgrid") / "events.db")
        stack.callback(store.close)
        # Each attempt opens a connection: a receiver may close an idle one just as it is reused,
        # which would count as a failed attempt.
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )
        assignments = RoleAssignments.from_environment(environment)
        tls = ssl.create_default_context(cafile=environment.ca)
        local = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls))
        )
        clients = DestinationClients(environment, assignments, local)
        faults = Injector(environment.state, Part.EVENT_GRID)
        identities = Identities(
            TokenIssuer(environment.keys.identity_header, frozenset({EVENT_GRID_AUDIENCE})),
            assignments,
        )
        router = Router(environment, configuration, store, session, clients, faults)
        await router.start()
        stack.push_async_callback(router.stop)
        application = Server(router, environment, identities, faults).application()
        ports = environment.ports
        listeners = {ports.event_grid: None, ports.event_grid_tls: server_context(certificates)}
        await stack.enter_async_context(listening(runner_of(application), listeners))
        yield
