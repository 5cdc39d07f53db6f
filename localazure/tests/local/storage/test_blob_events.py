"""The events that the real clients cause, and their contents."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, ContentSettings
from azure.storage.blob.aio import ContainerClient

from localazure.runtime.environment import STORAGE_ACCOUNT, Environment
from localazure.storage.hierarchy import EVENT_HEADER

pytestmark = pytest.mark.asyncio(loop_scope="session")

CREATED = "Microsoft.Storage.BlobCreated"


def summary(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (
            event["eventType"].rpartition(".")[2],
            event["data"]["api"],
            event["subject"].partition("/blobs/")[2],
        )
        for event in events
    ]


async def test_put_blob_event_is_exact(
    storage: Environment, container: ContainerClient, events: Any
) -> None:
    settings = ContentSettings(content_type="text/plain")
    blob = await container.upload_blob(
        "a/b c.txt", b"hello", content_settings=settings, headers={EVENT_HEADER: "null"}
    )
    (event,) = await events.wait_for(1)
    properties = await blob.get_blob_properties()
    data = event.pop("data")
    assert event.pop("id")
    assert event.pop("eventTime").endswith("Z")
    assert event == {
        "topic": (
            f"/subscriptions/{storage.subscription_id}/resourceGroups/local/providers"
            f"/Microsoft.Storage/storageAccounts/{STORAGE_ACCOUNT}"
        ),
        "subject": (f"/blobServices/default/containers/{container.container_name}/blobs/a/b c.txt"),
        "eventType": CREATED,
        "dataVersion": "",
        "metadataVersion": "1",
    }
    assert data.pop("clientRequestId")
    assert data.pop("requestId")
    assert data.pop("storageDiagnostics")["batchId"]
    assert len(data.pop("sequencer")) == 32
    assert data == {
        "api": "PutBlob",
        "eTag": properties.etag.strip('"'),
        "contentType": "text/plain",
        "contentLength": 5,
        "blobType": "BlockBlob",
        "url": blob.url,
    }


async def test_every_way_to_write_and_delete(container: ContainerClient, events: Any) -> None:
    block = 64 * 1024
    many_blocks = container.get_blob_client("blocks")
    for number in range(3):
        await many_blocks.stage_block(f"{number:04}", b"x" * block)
    await many_blocks.commit_block_list([BlobBlock(f"{number:04}") for number in range(3)])
    copy = container.get_blob_client("copy")
    await copy.start_copy_from_url(many_blocks.url)
    append = container.get_blob_client("append")
    await append.create_append_blob()
    await append.append_block(b"more")
    page = container.get_blob_client("page")
    await page.create_page_blob(1024)
    await copy.create_snapshot()
    await copy.set_blob_metadata({"k": "v"})
    await copy.delete_blob(delete_snapshots="include")
    with pytest.raises(HttpResponseError):
        await copy.delete_blob()
    with pytest.raises(HttpResponseError):
        await append.upload_blob(b"", overwrite=False)
    await page.delete_blob()
    found = await events.wait_for(6)
    assert summary(found) == [
        ("BlobCreated", "PutBlockList", "blocks"),
        ("BlobCreated", "CopyBlob", "copy"),
        ("BlobCreated", "PutBlob", "append"),
        ("BlobCreated", "PutBlob", "page"),
        ("BlobDeleted", "DeleteBlob", "copy"),
        ("BlobDeleted", "DeleteBlob", "page"),
    ]
    lengths = [event["data"].get("contentLength") for event in found]
    assert lengths == [3 * block, 3 * block, 0, 1024, None, None]
    assert [event["data"]["blobType"] for event in found[4:]] == ["BlockBlob", "PageBlob"]
    assert {event["data"]["contentType"] for event in found} == {"application/octet-stream"}
    assert "eTag" not in found[5]["data"]
    sequencers = [event["data"]["sequencer"] for event in found]
    assert sequencers == sorted(set(sequencers))


async def test_a_change_of_tier_has_its_event(container: ContainerClient, events: Any) -> None:
    blob = container.get_blob_client("aging")
    await blob.upload_blob(b"old")
    for tier in ("Cool", "Cool", "Hot"):  # the second one changes nothing
        await blob.set_standard_blob_tier(tier)
    _, cool, hot = await events.wait_for(3)
    assert cool["eventType"] == hot["eventType"] == "Microsoft.Storage.BlobTierChanged"
    assert cool["data"]["accessTier"] == "Cool"
    assert not cool["data"].keys() & {"eTag", "previousTier"}
    assert (hot["data"]["accessTier"], hot["data"]["previousTier"]) == ("Hot", "Cool")
    assert hot["data"]["contentLength"] == 3
    await container.set_standard_blob_tier_blobs(
        "Cool", "aging", "absent", raise_on_any_failure=False
    )
    *_, in_batch = await events.wait_for(4)
    assert (in_batch["data"]["api"], in_batch["data"]["accessTier"]) == ("SetBlobTier", "Cool")


async def test_batch_delete_has_an_event_for_each_blob_that_was_there(
    container: ContainerClient, events: Any
) -> None:
    await asyncio.gather(*(container.upload_blob(f"b/{n} ü", b"x") for n in range(5)))
    answers = await container.delete_blobs(
        *(f"b/{n} ü" for n in range(5)), "b/absent", raise_on_any_failure=False
    )
    assert [answer.status_code async for answer in answers] == [202] * 5 + [404]
    found = await events.wait_for(10)
    deleted = [name for kind, _, name in summary(found) if kind == "BlobDeleted"]
    assert sorted(deleted) == [f"b/{n} ü" for n in range(5)]


async def test_overwrites_are_in_order_of_their_sequencers(
    container: ContainerClient, events: Any
) -> None:
    etags: list[str] = []
    for number in range(10):
        blob = await container.upload_blob("same", f"{number}", overwrite=True)
        etags.append((await blob.get_blob_properties()).etag.strip('"'))
    by_sequencer = sorted(await events.wait_for(10), key=lambda event: event["data"]["sequencer"])
    assert [event["data"]["eTag"] for event in by_sequencer] == etags
