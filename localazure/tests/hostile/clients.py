"""Well-behaved clients, one for each port, that keep working while hostile ones attack."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.storage.blob.aio import BlobServiceClient
from azure.storage.queue.aio import QueueServiceClient

from localazure.runtime.environment import STORAGE_ACCOUNT, STORAGE_KEY, Environment
from localazure.runtime.identity import STORAGE_AUDIENCE

QUEUE = "work"
OPERATION_SECONDS = 20.0
"""The limit for an operation of a well-behaved client, also on a busy machine."""
PAUSE_SECONDS = 0.05

Operation = Callable[[], Awaitable[None]]


@dataclass
class Served:
    """The outcome of one client's operations."""

    operations: int = 0
    slowest_seconds: float = 0.0
    faults: list[str] = field(default_factory=list[str])


@contextlib.asynccontextmanager
async def clients(environment: Environment) -> AsyncGenerator[dict[str, Operation]]:
    """One operation for each port, by the port's name in `Ports`."""
    ports, keys = environment.ports, environment.keys
    tls = ssl.create_default_context(cafile=str(environment.ca_bundle))
    local = "127.0.0.1"
    event = {"specversion": "1.0", "id": "1", "source": "/test", "type": "test"}
    publisher = {
        "aeg-sas-key": environment.event_grid_keys("news")[0],
        "Content-Type": "application/cloudevents-batch+json",
    }
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        # Each request has a new connection, to detect a server that accepts none.
        http = await enter(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, ssl=tls))
        )

        def asks(url: str, status: int = 200, method: str = "GET", **options: Any) -> Operation:
            async def ask() -> None:
                async with http.request(method, url, **options) as response:
                    await response.read()
                    assert response.status == status, f"{response.status} for {status}"

            return ask

        def publishes(scheme: str, port: int) -> Operation:
            url = f"{scheme}://{local}:{port}/topics/news/api/events?api-version=2018-01-01"
            return asks(url, method="POST", headers=publisher, json=[event])

        def lists_tables(scheme: str, port: int) -> Operation:
            """Expect a refusal without a signature, because no SDK for tables is installed."""
            return asks(f"{scheme}://{local}:{port}/{STORAGE_ACCOUNT}/Tables", 403)

        async def storage(service: Any, scheme: str, port: int) -> Any:
            return await enter(
                service(
                    f"{scheme}://{local}:{port}/{STORAGE_ACCOUNT}",
                    STORAGE_KEY,
                    retry_total=0,
                    connection_verify=str(environment.ca_bundle),
                )
            )

        async def blob_client(scheme: str, port: int) -> Operation:
            return partial(_put_and_get, await storage(BlobServiceClient, scheme, port))

        async def queue_client(scheme: str, port: int) -> Operation:
            return (await storage(QueueServiceClient, scheme, port)).get_service_properties

        identity = f"http://{local}:{ports.identity}/msi/token?api-version=2019-08-01"
        yield {
            "functions": asks(
                f"{environment.functions_url}/api/hello",
                headers={"x-functions-key": keys.functions_host},
            ),
            "blob": await blob_client("http", ports.blob),
            "queue": await queue_client("http", ports.queue),
            "table": lists_tables("http", ports.table),
            "azurite_blob": await blob_client("http", ports.azurite_blob),
            "azurite_queue": await queue_client("http", ports.azurite_queue),
            "azurite_table": lists_tables("http", ports.azurite_table),
            # Without a signature, the request names no account.
            "blob_by_host": asks(f"http://{local}:{ports.blob_by_host}/landing", 400),
            "blob_tls": await blob_client("https", ports.blob_tls),
            "queue_tls": await queue_client("https", ports.queue_tls),
            "table_tls": lists_tables("https", ports.table_tls),
            "service_bus": partial(_send_and_receive, environment.service_bus_connection_string),
            "event_grid": publishes("http", ports.event_grid),
            "event_grid_tls": publishes("https", ports.event_grid_tls),
            "azure_ml": asks(f"{environment.azure_ml_url}/metadata/endpoints"),
            "identity": asks(
                f"{identity}&resource={STORAGE_AUDIENCE}",
                headers={"X-IDENTITY-HEADER": keys.identity_header},
            ),
        }


async def _put_and_get(service: BlobServiceClient) -> None:
    blob = service.get_blob_client("landing", uuid.uuid4().hex)
    await blob.upload_blob(b"whole")
    assert await (await blob.download_blob()).readall() == b"whole"
    await blob.delete_blob()


async def _send_and_receive(bus: str) -> None:
    async with ServiceBusClient.from_connection_string(bus, retry_total=0) as client:
        async with client.get_queue_sender(QUEUE) as sender:
            await sender.send_messages(ServiceBusMessage("whole"))
        async with client.get_queue_receiver(QUEUE) as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=OPERATION_SECONDS)
            await receiver.complete_message(message)


async def go_on(operation: Operation, served: Served) -> None:
    """Repeat an operation until canceled; record failures."""
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                await operation()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client was not served
            served.faults.append(f"{type(error).__name__}: {error}")
        served.operations += 1
        served.slowest_seconds = max(served.slowest_seconds, time.monotonic() - began)
        await asyncio.sleep(PAUSE_SECONDS)
