"""Composes the storage part: Azurite, the proxy, the ledger of operations, the publisher."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.outbox.publisher import publishing
from localazure.runtime.certificates import ensure_certificates, server_context
from localazure.runtime.environment import LOOPBACK, STORAGE_TOPIC, Environment
from localazure.runtime.http_server import listening
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer
from localazure.runtime.roles import RoleAssignments
from localazure.runtime.web_pages import WebPages
from localazure.storage.azurite_process import AzuriteProcess
from localazure.storage.blob_service import BlobService
from localazure.storage.configuration import StorageConfiguration
from localazure.storage.dfs_endpoint import DfsEndpoint
from localazure.storage.exchanges import Exchanges
from localazure.storage.gate import Gate
from localazure.storage.hierarchy import Hierarchy
from localazure.storage.ledger import Ledger
from localazure.storage.outbox import Outbox
from localazure.storage.proxy import Proxy, connections
from localazure.storage.targets import Targets
from localazure.storage_client.service import Service


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
        Service.BLOB: (ports.blob, ports.blob_tls, Exchanges(ports.azurite_blob)),
        Service.QUEUE: (ports.queue, ports.queue_tls, Exchanges(ports.azurite_queue)),
        Service.TABLE: (ports.table, ports.table_tls, Exchanges(ports.azurite_table)),
    }
    async with contextlib.AsyncExitStack() as stack:
        outbox = Outbox(environment.part_folder("storage") / "outbox.db")
        stack.callback(outbox.close)
        await stack.enter_async_context(azurite.running())
        to_azurite = await stack.enter_async_context(connections())
        *_, to_blob_service = services[Service.BLOB]
        blobs = BlobService(to_azurite, to_blob_service.origin, environment.storage_key)
        hierarchy = Hierarchy(functools.partial(environment.storage_connection_string, direct=True))
        stack.push_async_callback(hierarchy.close)
        ledger = Ledger(
            outbox,
            blobs,
            azurite,
            topic_of=lambda account: environment.resource_id(
                f"Microsoft.Storage/storageAccounts/{account}"
            ),
            has_topic=lambda account: account in accounts and accounts[account].has_system_topic,
            origin=f"http://{LOOPBACK}:{ports.blob}",
        )
        for account in accounts.values():
            for container in account.containers:
                await blobs.create_container(account.name, container)
        await ledger.reconcile()
        topic = environment.topic_endpoint(STORAGE_TOPIC)
        key, _ = environment.event_grid_keys(STORAGE_TOPIC)
        await stack.enter_async_context(publishing(outbox, topic, key))
        stack.push_async_callback(ledger.drain)
        faults = Injector(environment.state, Part.STORAGE)
        gate = Gate(
            accounts,
            environment.storage_key,
            TokenIssuer(environment.keys.identity_header, frozenset({STORAGE_AUDIENCE})),
            RoleAssignments.of_environment(environment),
            Targets(accounts),
            lambda: datetime.now(UTC) + timedelta(seconds=faults.clock_skew_seconds()),
        )
        tls = server_context(ensure_certificates(environment))
        for service, (port, tls_port, exchanges) in services.items():
            stack.callback(exchanges.close)
            proxy = Proxy(
                service,
                to_azurite,
                exchanges,
                azurite=azurite,
                gate=gate,
                ledger=ledger if service is Service.BLOB else None,
                faults=faults,
                dfs=DfsEndpoint(gate, hierarchy, ledger) if service is Service.BLOB else None,
            )
            listeners = [(proxy.runner(), {port: None, tls_port: tls})]
            if service is Service.BLOB:
                listeners.append((proxy.runner(is_host_style=True), {ports.blob_by_host: None}))
            for runner, of_runner in listeners:
                # Azurite knows the accounts' CORS rules: `azurite/web_pages.js`.
                pages = WebPages(has_own_cors=True)
                await stack.enter_async_context(listening(runner, of_runner, pages=pages))
        yield
