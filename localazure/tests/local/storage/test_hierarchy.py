"""Files and directories of a hierarchical account, with azure-storage-file-datalake."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob.aio import ContainerClient
from azure.storage.filedatalake import ContentSettings
from azure.storage.filedatalake.aio import DataLakeServiceClient, FileSystemClient
from yarl import URL

from localazure.runtime.environment import LOOPBACK, Environment
from localazure.storage import dfs_endpoint
from localazure.storage_client.signature import sign_request

pytestmark = pytest.mark.asyncio(loop_scope="session")

LAKE = "lake"


async def summary(events: Any, count: int) -> list[tuple[str, str, str]]:
    """Wait for a number of events and return type, operation and path of each."""
    return [
        (
            event["eventType"].rpartition(".")[2],
            event["data"]["api"],
            event["subject"].partition("/blobs/")[2],
        )
        for event in await events.wait_for(count)
    ]


@pytest_asyncio.fixture(loop_scope="session")
async def filesystem(storage: Environment) -> AsyncIterator[FileSystemClient]:
    text = storage.storage_connection_string(LAKE)
    async with DataLakeServiceClient.from_connection_string(text, retry_total=0) as service:
        yield await service.create_file_system(f"f{uuid.uuid4().hex}")


@pytest_asyncio.fixture(loop_scope="session")
async def lake_events(events_of: Callable[[str], Any], filesystem: FileSystemClient) -> Any:
    return events_of(filesystem.file_system_name)


def journal_of(storage: Environment) -> list[str]:
    """The lines of the journals of Azurite's metadata; see `test_durable_metadata`."""
    folder = storage.part_folder("storage") / "azurite"
    journals = sorted(folder.glob("__azurite_db_blob__.json.journal-*"))
    return [line for journal in journals for line in journal.read_text().splitlines()]


async def content(filesystem: FileSystemClient, path: str) -> bytes:
    return await (await filesystem.get_file_client(path).download_file()).readall()


async def names(filesystem: FileSystemClient, **options: Any) -> list[str]:
    listed = filesystem.get_paths(**options)
    return [path.name + "/" * path.is_directory async for path in listed]


async def test_a_commit_by_rename_as_spark_does_it(
    filesystem: FileSystemClient, lake_events: Any
) -> None:
    """Hadoop's commit algorithm renames files (version 2), and also directories (version 1)."""
    task = "event/_temporary/0/_temporary/attempt_0"
    await filesystem.create_directory("event")
    await filesystem.create_directory(task)
    part = filesystem.get_file_client(f"{task}/part-0 ü.png")
    await part.create_file(content_settings=ContentSettings(content_type="image/png"))
    await part.append_data(b"abc", 0)
    await part.append_data(b"defg", 3)
    await part.flush_data(7, close=True)
    root = filesystem.file_system_name
    await part.rename_file(f"{root}/event/part-0 ü.png")
    await filesystem.get_file_client(f"{task}/part-1.png").upload_data(b"second", overwrite=True)
    await filesystem.get_directory_client(task).rename_directory(f"{root}/event/landing")
    await filesystem.get_directory_client("event/_temporary").delete_directory()

    assert await content(filesystem, "event/part-0 ü.png") == b"abcdefg"
    assert await content(filesystem, "event/landing/part-1.png") == b"second"
    moved = await filesystem.get_file_client("event/part-0 ü.png").get_file_properties()
    assert (moved.size, moved.content_settings.content_type) == (7, "image/png")
    assert await names(filesystem) == [
        "event/",
        "event/landing/",
        "event/landing/part-1.png",
        "event/part-0 ü.png",
    ]
    assert await summary(lake_events, 9) == [
        ("DirectoryCreated", "CreateDirectory", "event"),
        ("DirectoryCreated", "CreateDirectory", task),
        ("BlobCreated", "CreateFile", f"{task}/part-0 ü.png"),
        ("BlobCreated", "FlushWithClose", f"{task}/part-0 ü.png"),
        ("BlobRenamed", "RenameFile", "event/part-0 ü.png"),
        ("BlobCreated", "CreateFile", f"{task}/part-1.png"),
        ("BlobCreated", "FlushWithClose", f"{task}/part-1.png"),
        ("DirectoryRenamed", "RenameDirectory", "event/landing"),
        ("DirectoryDeleted", "DeleteDirectory", "event/_temporary"),
    ]


async def test_the_events_have_the_fields_of_azure(
    storage: Environment, filesystem: FileSystemClient, lake_events: Any
) -> None:
    file = filesystem.get_file_client("a/one.txt")
    written = await file.upload_data(b"hello", overwrite=True)
    await file.rename_file(f"{filesystem.file_system_name}/a/two.txt")
    await filesystem.delete_directory("a")
    _, flushed, renamed, deleted = await lake_events.wait_for(4)
    root = f"http://{LOOPBACK}:{storage.ports.blob}/{LAKE}/{filesystem.file_system_name}"
    drawn = {"clientRequestId", "requestId", "sequencer", "storageDiagnostics"}
    for event in lake_events.all:
        assert drawn <= event["data"].keys()
        assert event["topic"].endswith(f"/Microsoft.Storage/storageAccounts/{LAKE}")
    assert [event["dataVersion"] for event in lake_events.all] == ["2", "2", "1", "1"]
    assert {k: v for k, v in flushed["data"].items() if k not in drawn} == {
        "api": "FlushWithClose",
        "eTag": written["etag"].strip('"'),
        "contentType": "application/octet-stream",
        "contentLength": 5,
        "contentOffset": 5,
        "blobType": "BlockBlob",
        "url": f"{root}/a/one.txt",
    }
    assert {k: v for k, v in renamed["data"].items() if k not in drawn} == {
        "api": "RenameFile",
        "destinationUrl": f"{root}/a/two.txt",
        "sourceUrl": f"{root}/a/one.txt",
    }
    assert {k: v for k, v in deleted["data"].items() if k not in drawn} == {
        "api": "DeleteDirectory",
        "url": f"{root}/a",
        "recursive": "true",
    }


async def test_what_is_refused(filesystem: FileSystemClient, lake_events: Any) -> None:
    root = filesystem.file_system_name
    file = await filesystem.create_file("a/file", metadata={"key": "value"})
    assert (await file.get_file_properties()).metadata == {"key": "value"}
    count = len(await lake_events.wait_for(1))
    with pytest.raises(ResourceExistsError, match="PathAlreadyExists"):
        await filesystem.create_file("a/file", match_condition=MatchConditions.IfMissing)
    with pytest.raises(ResourceExistsError, match="PathAlreadyExists"):
        await filesystem.create_directory("a/file")
    with pytest.raises(ResourceExistsError, match="PathAlreadyExists"):
        await filesystem.create_file("a/file/below")
    with pytest.raises(ResourceNotFoundError, match="SourcePathNotFound"):
        await filesystem.get_file_client("none").rename_file(f"{root}/a/other")
    with pytest.raises(ResourceNotFoundError, match="RenameDestinationParentPathNotFound"):
        await file.rename_file(f"{root}/none/file")
    with pytest.raises(HttpResponseError, match="InvalidRenameSourcePath"):
        await filesystem.get_directory_client("a").rename_directory(f"{root}/a/b")
    with pytest.raises(HttpResponseError, match="DirectoryNotEmpty"):
        await filesystem.get_file_client("a").delete_file()
    await file.append_data(b"data", 0)
    with pytest.raises(HttpResponseError, match="InvalidFlushPosition"):
        await file.flush_data(5, close=True)
    with pytest.raises(ResourceModifiedError, match="ConditionNotMet"):
        await file.flush_data(
            4, close=True, etag="0x1", match_condition=MatchConditions.IfNotModified
        )
    with pytest.raises(HttpResponseError, match="does not cover PATCH of setAccessControl"):
        await file.set_access_control(permissions="rwxr-x---")
    assert len(lake_events.all) == count


async def test_a_file_grows_from_flush_to_flush(filesystem: FileSystemClient) -> None:
    file = await filesystem.create_file("file", metadata={"key": "value"})
    await file.append_data(b"one", 0, flush=True)
    await file.append_data(b"two", 3)
    await file.flush_data(6)
    assert await content(filesystem, "file") == b"onetwo"
    assert (await file.get_file_properties()).metadata == {"key": "value"}
    await filesystem.get_file_client("new").upload_data(b"first", overwrite=False)
    with pytest.raises(HttpResponseError):
        await filesystem.get_file_client("new").upload_data(b"again", overwrite=False)
    assert await content(filesystem, "new") == b"first"


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_an_append_has_a_longest_size(
    storage: Environment,
    filesystem: FileSystemClient,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_chunked: bool,
) -> None:
    monkeypatch.setattr(dfs_endpoint, "MAX_APPEND_BYTES", 1000)
    file = await filesystem.create_file("file")

    async def append(size: int) -> tuple[int, str | None]:
        async def pieces() -> AsyncIterator[bytes]:
            for begin in range(0, size, 100):
                yield bytes(min(100, size - begin))

        url = URL(f"{file.url}?action=append&position=0")
        headers = {"x-ms-date": format_datetime(datetime.now(UTC), usegmt=True)}
        headers["x-ms-version"] = "2023-11-03"
        signed = headers | {"content-type": "application/octet-stream"}
        if not is_chunked:
            signed["content-length"] = str(size)
        key = storage.storage_key(LAKE)
        headers["Authorization"] = sign_request("PATCH", str(url), signed, account=LAKE, key=key)
        data = pieces() if is_chunked else bytes(size)
        async with (
            aiohttp.ClientSession() as session,
            session.patch(url, data=data, headers=headers) as response,
        ):
            return response.status, response.headers.get("x-ms-error-code")

    assert await append(1000) == (202, None)
    assert await append(1001) == (413, "RequestBodyTooLarge")


async def test_another_key_and_another_account(storage: Environment) -> None:
    url = f"http://{LOOPBACK}:{storage.ports.blob}"
    wrong = {"account_name": LAKE, "account_key": storage.storage_key("other")}
    async with FileSystemClient(f"{url}/{LAKE}", "landing", wrong, retry_total=0) as client:
        with pytest.raises(HttpResponseError, match="AuthenticationFailed"):
            await client.create_file("x")
    flat = storage.storage_connection_string()
    async with FileSystemClient.from_connection_string(flat, "landing") as client:
        with pytest.raises(HttpResponseError, match="isHnsEnabled"):
            await client.create_file("x")


async def test_each_page_continues_after_the_previous_one(
    storage: Environment, filesystem: FileSystemClient
) -> None:
    """Directories may have blobs, or be only prefixes of blob names."""
    await filesystem.create_file("a/b/1")
    text = storage.storage_connection_string(LAKE)
    async with ContainerClient.from_connection_string(
        text, filesystem.file_system_name
    ) as container:
        for name in ("a-/1", "a.txt", "a/c/d/1", "a/c/d/2", "e/f/1", "e/f-", "e/g"):
            await container.upload_blob(name, b"1")
    directories = ["a", "a-", "a/b", "a/c", "a/c/d", "e", "e/f"]
    files = ["a-/1", "a.txt", "a/b/1", "a/c/d/1", "a/c/d/2", "e/f-", "e/f/1", "e/g"]
    everything = sorted([*(f"{name}/" for name in directories), *files])
    top = ["a-/", "a.txt", "a/", "e/"]
    below = ["e/f-", "e/f/", "e/g"]
    for size in (1, 2, 3, 5000):
        assert sorted(await names(filesystem, max_results=size)) == everything
        assert sorted(await names(filesystem, max_results=size, recursive=False)) == top
        listed = await names(filesystem, path="e", max_results=size, recursive=False)
        assert sorted(listed) == below
    with pytest.raises(ResourceNotFoundError, match="PathNotFound"):
        await names(filesystem, path="z")
    # The Blob service shows a directory as a blob, as on Azure.
    shown = await filesystem.get_directory_client("a").get_directory_properties()
    assert shown.metadata == {"hdi_isfolder": "true"}


async def test_one_of_several_renames_to_one_path_succeeds(
    filesystem: FileSystemClient, lake_events: Any
) -> None:
    """Table formats commit this way: the first file with the name is the next version."""
    root = filesystem.file_system_name
    files = [await filesystem.create_file(f"log/{number}") for number in range(6)]
    done = await asyncio.gather(
        *(
            file.rename_file(f"{root}/log/next", match_condition=MatchConditions.IfMissing)
            for file in files
        ),
        return_exceptions=True,
    )
    refused = [each for each in done if isinstance(each, ResourceExistsError)]
    assert len(refused) == len(files) - 1
    assert len(await names(filesystem)) == 1 + len(files)
    events = await lake_events.wait_for(len(files) + 1)
    assert [event["data"]["api"] for event in events].count("RenameFile") == 1


async def test_what_a_rename_moves(filesystem: FileSystemClient, storage: Environment) -> None:
    root = filesystem.file_system_name
    file = await filesystem.create_file("a/file")
    await file.append_data(b"one", 0, flush=True)
    properties = await file.get_file_properties()
    text = storage.storage_connection_string(LAKE)
    async with ContainerClient.from_connection_string(text, root) as container:
        snapshot = await container.get_blob_client("a/file").create_snapshot()
        await file.append_data(b"two", 3)
        before = journal_of(storage)
        await filesystem.get_directory_client("a").rename_directory(f"{root}/b")
        (renamed,) = set(journal_of(storage)) - set(before)  # a crash keeps or loses a line
        assert renamed.count('"name":"b/') == 2
        blob = container.get_blob_client("b/file", snapshot=str(snapshot["snapshot"]))
        assert await (await blob.download_blob()).readall() == b"one"
    moved = filesystem.get_file_client("b/file")
    after = await moved.get_file_properties()
    assert (after.etag, after.last_modified) == (properties.etag, properties.last_modified)
    await moved.flush_data(6)
    assert await content(filesystem, "b/file") == b"onetwo"
    with pytest.raises(ResourceNotFoundError):
        await file.get_file_properties()


async def test_a_leased_file_is_not_renamed(filesystem: FileSystemClient) -> None:
    root = filesystem.file_system_name
    file = await filesystem.create_file("file")
    lease = await file.acquire_lease()
    with pytest.raises(HttpResponseError, match="LeaseIdMissing"):
        await file.rename_file(f"{root}/other")
    await lease.release()
    await file.rename_file(f"{root}/other")
    assert await names(filesystem) == ["other"]
