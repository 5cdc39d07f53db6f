"""Composes the Service Bus part: store, broker, and the TCP servers for its clients.

They listen on loopback: plain TCP for keys, TLS for identities.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.runtime.certificates import ensure_certificates, server_context
from localazure.runtime.environment import (
    AMQPS_PORT,
    LOOPBACK,
    SERVICE_BUS_KEY_NAME,
    Environment,
)
from localazure.runtime.identity import SERVICE_BUS_AUDIENCE, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.servicebus import configuration, store
from localazure.servicebus.authorization import Identities, Right, SharedKey
from localazure.servicebus.broker import Broker
from localazure.servicebus.configuration import Claim
from localazure.servicebus.server import ClientProtocol, close_clients
from localazure.sqlite.database import Database


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Listen on `ports.service_bus`, and over TLS, until the context ends.

    All changes are durable when the context ends.

    Raises:
        ConfigurationError: the configuration file is not valid.
        OSError: the port is in use.
    """
    namespace = configuration.load(environment.service_bus_config)
    keys = _keys(environment, namespace)
    identities = Identities(
        TokenIssuer(environment.keys.identity_header, frozenset({SERVICE_BUS_AUDIENCE})),
        RoleAssignments.from_environment(environment),
    )
    file = environment.part_folder("servicebus") / "servicebus.db"
    faults = Injector(environment.state, Part.SERVICE_BUS)
    clients: set[ClientProtocol] = set()
    async with contextlib.AsyncExitStack() as stack:
        database = Database(file, store.MIGRATIONS)
        stack.callback(database.close)
        broker = await Broker.start(namespace, database)
        stack.push_async_callback(broker.stop)
        stack.push_async_callback(close_clients, clients)

        def client() -> ClientProtocol:
            return ClientProtocol(broker, keys, clients, faults, identities)

        tls = server_context(ensure_certificates(environment))
        loop = asyncio.get_running_loop()
        for host, port, context in (
            (LOOPBACK, environment.ports.service_bus, None),
            (environment.service_bus_host, AMQPS_PORT, tls),
        ):
            server = await loop.create_server(client, host, port, ssl=context)
            stack.callback(server.close)
        yield


def _keys(
    environment: Environment, namespace: configuration.NamespaceConfiguration
) -> list[SharedKey]:
    claims = {Claim.SEND: Right.SEND, Claim.LISTEN: Right.RECEIVE}
    rules = [
        SharedKey(
            rule.name,
            environment.service_bus_key(rule.name, entity),
            frozenset(right for claim, right in claims.items() if claim in rule.claims),
            entity.lower(),
        )
        for entity, rule in namespace.rules()
    ]
    return [SharedKey(SERVICE_BUS_KEY_NAME, environment.keys.service_bus), *rules]
