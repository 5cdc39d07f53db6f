"""Composes the storage part: Azurite, the proxy, the publisher of events."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.outbox.publisher import publishing
from localazure.runtime.certificates import ensure_certificates, server_context
from localazure.runtime.environment import LOOPBACK, STORAGE_TOPIC, Environment
from localazure.runtime.http_server import listening
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.runtime.web_pages import WebPages
from localazure.storage.authorization import Gate
from localazure.storage.azurite_process import AzuriteProcess
from localazure.storage.configuration import StorageConfiguration
from localazure.storage.dfs_endpoint import DfsEndpoint
from localazure.storage.event_journal import EventJournal
from localazure.storage.events import blob_event
from localazure.storage.hierarchy import Hierarchy
from localazure.storage.server import Proxy, connections
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import Service


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve storage on `ports.blob`, `.queue` and `.table` of loopback, and over TLS.

    Raises:
        ConfigurationError: `storage.json` is not valid.
        AzuriteNotInstalled: Node.js or Azurite is missing.
        AzuriteFailed: Azurite did not start.
        OSError: a port is taken.
    """
    ports = environment.ports
    accounts = StorageConfiguration.read(environment.storage_config).accounts
    azurite = AzuriteProcess(environment, accounts)
    services = {
        Service.BLOB: (ports.blob, ports.blob_tls, ports.azurite_blob),
        Service.QUEUE: (ports.queue, ports.queue_tls, ports.azurite_queue),
        Service.TABLE: (ports.table, ports.table_tls, ports.azurite_table),
    }
    async with contextlib.AsyncExitStack() as stack:
        events = event_journal(environment)
        stack.callback(events.close)
        await stack.enter_async_context(azurite.running())
        to_azurite = await stack.enter_async_context(connections())

        def blob_service(account: str) -> StorageClient:
            return StorageClient(to_azurite, environment.blob_endpoint(account, direct=True))

        for account in accounts.values():
            for container in account.containers:
                await blob_service(account.name).create_container(container)
        topic = environment.topic_endpoint(STORAGE_TOPIC)
        key, _ = environment.event_grid_keys(STORAGE_TOPIC)
        await stack.enter_async_context(publishing(events, topic, key))
        faults = Injector(environment.state, Part.STORAGE)
        gate = Gate(
            accounts,
            environment.storage_key,
            TokenIssuer(environment.keys.identity_header, frozenset({STORAGE_AUDIENCE})),
            RoleAssignments.from_environment(environment),
            lambda: datetime.now(UTC) + timedelta(seconds=faults.clock_skew_seconds()),
        )
        tls = server_context(ensure_certificates(environment))
        for service, (port, tls_port, port_of_azurite) in services.items():
            is_blob = service is Service.BLOB
            proxy = Proxy(
                service,
                to_azurite,
                f"http://{LOOPBACK}:{port_of_azurite}",
                azurite=azurite,
                gate=gate,
                faults=faults,
                dfs=DfsEndpoint(gate, Hierarchy(blob_service)) if is_blob else None,
                on_change=events.filled.set if is_blob else None,
            )
            listeners = [(proxy.runner(), {port: None, tls_port: tls})]
            if is_blob:
                listeners.append((proxy.runner(is_host_style=True), {ports.blob_by_host: None}))
            for runner, of_runner in listeners:
                # Azurite knows the accounts' CORS rules: `azurite/web_pages.js`.
                pages = WebPages(has_own_cors=True)
                await stack.enter_async_context(listening(runner, of_runner, pages=pages))
        yield


def event_journal(environment: Environment) -> EventJournal:
    """The events of the accounts that have a topic."""
    accounts = StorageConfiguration.read(environment.storage_config).accounts

    def event_of(change: Mapping[str, Any], number: int) -> dict[str, Any] | None:
        account = accounts.get(change["account"])
        if account is None or not account.has_system_topic:
            return None
        topic = environment.resource_id(f"Microsoft.Storage/storageAccounts/{account.name}")
        origin = f"http://{LOOPBACK}:{environment.ports.blob}"
        return blob_event(change, number, topic=topic, origin=origin)

    folder = environment.part_folder("storage") / "azurite"
    return EventJournal(folder / "__azurite_db_blob__.json", event_of)
