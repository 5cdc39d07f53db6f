"""Composes the storage part: Azurite, the proxy, the ledger of operations, the publisher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import aiohttp

from localazure.outbox.publisher import EventPublisher
from localazure.runtime.environment import LOOPBACK, STORAGE_TOPIC, Environment
from localazure.storage.azurite_process import AzuriteProcess
from localazure.storage.blob_service import BlobService
from localazure.storage.configuration import load_containers
from localazure.storage.events import topic_of
from localazure.storage.ledger import Ledger
from localazure.storage.outbox import Outbox
from localazure.storage.proxy import Proxy, connections


@contextlib.asynccontextmanager
async def serve(environment: Environment) -> AsyncGenerator[None]:
    """Serve storage on `ports.blob`, `.queue` and `.table` of loopback.

    Raises:
        ConfigurationError: `storage.json` is not valid.
        AzuriteNotInstalled: Node.js or Azurite is missing.
        AzuriteFailed: Azurite did not start.
        OSError: a port is taken.
    """
    ports = environment.ports
    containers = load_containers(environment.storage_config)
    azurite = AzuriteProcess(environment)
    upstream = f"http://{LOOPBACK}:{ports.azurite_blob}"
    async with contextlib.AsyncExitStack() as stack:
        outbox = Outbox(environment.part_folder("storage") / "outbox.db")
        stack.callback(outbox.close)
        await stack.enter_async_context(azurite.running())
        to_azurite = await stack.enter_async_context(connections())
        blobs = BlobService(to_azurite, upstream)
        ledger = Ledger(
            outbox,
            blobs,
            azurite,
            topic=topic_of(environment.subscription_id, environment.resource_group),
            origin=f"http://{LOOPBACK}:{ports.blob}",
        )
        for container in containers:
            await blobs.create_container(container)
        await ledger.reconcile()
        to_event_grid = await stack.enter_async_context(aiohttp.ClientSession())
        publisher = EventPublisher(
            outbox,
            to_event_grid,
            environment.topic_endpoint(STORAGE_TOPIC),
            environment.keys.event_grid,
        )
        publishing = asyncio.create_task(publisher.run())
        stack.push_async_callback(_cancel, publishing)
        stack.push_async_callback(ledger.drain)
        proxy = Proxy(to_azurite, upstream, azurite, ledger)
        await stack.enter_async_context(proxy.listening(LOOPBACK, ports.blob))
        yield


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
