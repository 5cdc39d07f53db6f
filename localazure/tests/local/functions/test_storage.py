"""Triggers, inputs and outputs of storage, on Azurite."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.storage.blob.aio import BlobServiceClient

from harness.waiting import eventually
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.triggers.blob.scan import BlobScan
from localazure.runtime.environment import Environment
from localazure.storage.service import serve as serve_storage
from localazure.storage_client.blobs import Blob
from localazure.storage_client.queue import StorageQueue

pytestmark = pytest.mark.asyncio(loop_scope="module")
BLOB_WEBHOOK = "/runtime/webhooks/blobs"
CONNECTION = "AzureWebJobsStorage"


def settings(environment: Environment) -> dict[str, str]:
    return {
        CONNECTION: environment.storage_connection_string(),
        "ORDERS": "orders",
        "TASKS": "tasks",
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def storage(shared: Any) -> AsyncGenerator[StorageClients]:
    """Clients of the running Azurite."""
    shared.environment.storage_config.write_text('{"containers": ["landing"]}')
    clients = StorageClients(settings(shared.environment))
    async with serve_storage(shared.environment):
        yield clients
        await clients.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(shared: Any, storage: StorageClients) -> AsyncGenerator[aiohttp.ClientSession]:  # noqa: ARG001 - first
    """A client of the running app."""
    names = settings(shared.environment)
    async with shared.running_app("storage", **names) as (_, client):
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def blobs(shared: Any, storage: StorageClients) -> AsyncGenerator[BlobServiceClient]:  # noqa: ARG001 - first
    connection = shared.environment.storage_connection_string()
    async with BlobServiceClient.from_connection_string(connection) as service:
        yield service


async def received(queue: StorageQueue) -> str:
    messages = await eventually(lambda: queue.receive(1, 1))
    await queue.delete(messages[0].id, messages[0].pop_receipt)
    return messages[0].text


async def test_a_queue_message_to_a_blob_and_back(
    shared: Any, client: aiohttp.ClientSession
) -> None:
    async with client.post("/api/orders/17") as response:
        assert await response.text() == "ordered"

    async def receipt() -> str | None:
        async with client.get("/api/receipts/17") as response:
            found = await response.text()
        return found if found != "none" else None  # a blob that is missing is an empty input

    assert await eventually(receipt) == "receipt of 17"
    (seen,) = shared.seen.of("on_order")
    assert seen["order"] == {"id": "17", "item": {"sku": "a/b"}}
    assert seen["dequeue_count"] == 1
    assert seen["has_times"]


@pytest.mark.usefixtures("client")
async def test_a_message_that_is_not_base64_goes_to_the_poison_queue(
    storage: StorageClients,
) -> None:
    queue = await storage.queue(CONNECTION, "tasks")
    await queue.put("<not base64!>")
    assert await received(await storage.queue(CONNECTION, "tasks-poison")) == "<not base64!>"


async def test_no_more_at_a_time_than_batch_and_threshold(
    shared: Any, client: aiohttp.ClientSession
) -> None:
    texts = [f"0.{number}0" for number in range(1, 8)]
    async with client.post("/api/many", json=texts) as response:
        assert response.status == 200

    def notes() -> list[dict[str, Any]]:
        return [note for note in shared.seen.of("on_task") if note["text"] in texts]

    await eventually(lambda: len(notes()) == 2 * len(texts))
    changes = [1 if note["state"] == "began" else -1 for note in notes()]
    assert 2 <= max(itertools.accumulate(changes)) <= 4


def blob_event(name: str, kind: str = "Microsoft.Storage.BlobCreated") -> dict[str, Any]:
    return {
        "id": name,
        "subject": f"/blobServices/default/containers/landing/blobs/{name}",
        "eventType": kind,
        "data": {"blobType": "BlockBlob", "eTag": "0x1"},
    }


async def tell(
    client: aiohttp.ClientSession,
    *events: dict[str, Any],
    function: str = "Host.Functions.on_blob",
    key: str = "system-key",
) -> int:
    async with client.post(
        BLOB_WEBHOOK,
        params={"functionName": function, "code": key},
        headers={"aeg-event-type": "Notification"},
        json=list(events),
    ) as response:
        return response.status


async def test_a_blob_triggers_its_function(
    shared: Any, client: aiohttp.ClientSession, blobs: BlobServiceClient
) -> None:
    name = "a/b/ü c.txt"
    blob = blobs.get_blob_client("landing", name)
    await blob.upload_blob(b"hello", metadata={"who": "me"})
    # The deletion, the other path and the deleted blob do not trigger the function.
    events = (
        blob_event(name, "Microsoft.Storage.BlobDeleted"),
        blob_event("a/other.csv"),
        blob_event("gone/away.txt"),
        blob_event(name),
    )
    assert await tell(client, *events) == 202
    copy = blobs.get_blob_client("landed", "a/b-ü c.copy")
    await eventually(copy.exists)
    assert await (await copy.download_blob()).readall() == b"HELLO"
    assert shared.seen.of("on_blob", content="hello") == [
        {
            "function": "on_blob",
            "name": f"landing/{name}",
            "length": 5,
            "uri": blob.url,
            "type": "BlockBlob",
            "metadata": {"who": "me"},
            "content": "hello",
        }
    ]


async def test_a_blob_that_fails_goes_to_the_poison_queue(
    shared: Any, client: aiohttp.ClientSession, storage: StorageClients, blobs: BlobServiceClient
) -> None:
    await blobs.get_blob_client("landing", "x/bad.txt").upload_blob(b"bad")
    assert await tell(client, blob_event("x/bad.txt")) == 202
    poison = await storage.queue(CONNECTION, "webjobs-blobtrigger-poison")
    message = json.loads(base64.b64decode(await received(poison)))
    assert message["FunctionId"] == "Host.Functions.on_blob"
    assert (message["ContainerName"], message["BlobName"]) == ("landing", "x/bad.txt")
    assert len(shared.seen.of("on_blob", content="bad")) == 2


@pytest.mark.usefixtures("client")
async def test_a_blob_is_found_by_polling(shared: Any, blobs: BlobServiceClient) -> None:
    polled = await blobs.create_container("polled")
    await polled.upload_blob("a.txt", b"one")
    await polled.upload_blob("b.csv", b"not for it")
    notes = {"name": "polled/a.txt", "content": "one"}
    await eventually(lambda: shared.seen.of("on_polled_blob", **notes))
    assert len(shared.seen.of("on_polled_blob")) == 1


async def test_each_version_of_a_blob_is_found_once(
    storage: StorageClients, blobs: BlobServiceClient
) -> None:
    found: list[str] = []

    async def announce(blob: Blob) -> None:
        found.append(blob.name)

    def scan() -> BlobScan:
        return BlobScan(
            connection=CONNECTION,
            container="versions",
            receipts="blobreceipts/host/Host.Functions.f",
            concerns=lambda name: name.endswith(".txt"),
            announce=announce,
            storage=storage,
        )

    first = scan()
    await first.scan()  # the container does not exist yet
    container = await blobs.create_container("versions")
    await container.upload_blob("a/b.txt", b"1")
    await container.upload_blob("c.csv", b"1")
    await first.scan()
    await first.scan()
    assert found == ["a/b.txt"]
    await container.upload_blob("a/b.txt", b"2", overwrite=True)
    await first.scan()
    assert found == ["a/b.txt"] * 2
    await scan().scan()  # after a restart
    assert found == ["a/b.txt"] * 2
    receipts = blobs.get_container_client("azure-webjobs-hosts")
    names = [name async for name in receipts.list_blob_names() if name.endswith("/a/b.txt")]
    for name in names:
        await receipts.delete_blob(name)
    await scan().scan()
    assert found == ["a/b.txt"] * 3


async def test_the_blob_webhook_takes_its_own_functions_and_the_system_key(
    client: aiohttp.ClientSession,
) -> None:
    event = blob_event("a/b.txt")
    assert await tell(client, event, function="Host.Functions.on_order") == 404
    assert await tell(client, event, key="host-key") == 401
