"""Listings come from a sorted index of names. They must equal the service's listings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio
from azure.storage.blob.aio import BlobPrefix, BlobServiceClient, ContainerClient

from localazure.runtime.environment import Environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Names that look like numbers, share prefixes, or are ordered by UTF-16 and not by code points.
NAMES = (
    *("10", "9", "1e3", "0x10", "10/a", "10/b/c", "9/", "a", "a.b", "a/", "a/1", "a/10", "a/9"),
    *(
        "a/b/1",
        "a/b/2",
        "a-/1",
        "ab",
        "b/1",
        "Z",
        "z",
        "ä/1",
        "\uffee/1",
        "\U0001f600/1",
        "a b/%2F",
    ),
    *(f"many/{number:02}" for number in range(12)),
)
PREFIXES = ("", "a", "a/", "a/b/", "1", "10", "many/", "many/0", "nothing", "\U0001f600")
PAGES = (2, 7)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def listed(storage: Environment) -> AsyncIterator[ContainerClient]:
    """A container with blobs of these names, some written twice; another container exists."""
    async with BlobServiceClient.from_connection_string(
        storage.storage_connection_string()
    ) as service:
        neighbour = await service.create_container("neighbour")
        await neighbour.upload_blob("a/of-another-container", b"")
        container = await service.create_container("listed")
        for name in reversed(NAMES):
            await container.upload_blob(name, b"1")
        assert await names(container) == in_order(NAMES)  # the first listing creates the index
        await container.upload_blob("a/b/3", b"1")
        await container.delete_blob("a/b/3")
        for name in NAMES[::3]:
            await container.upload_blob(name, b"22", overwrite=True)
        yield container


def in_order(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


async def names(container: ContainerClient, **options: Any) -> list[str]:
    return [blob.name async for blob in container.list_blobs(**options)]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("page", PAGES)
async def test_a_listing_has_each_name_once_and_in_order(
    listed: ContainerClient, prefix: str, page: int
) -> None:
    found = await names(listed, name_starts_with=prefix, results_per_page=page)
    assert found == in_order([name for name in NAMES if name.startswith(prefix)])


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("page", PAGES)
async def test_a_hierarchy_has_each_folder_and_file_once(
    listed: ContainerClient, prefix: str, page: int
) -> None:
    found = [
        (each.name, isinstance(each, BlobPrefix))
        async for each in listed.walk_blobs(name_starts_with=prefix, results_per_page=page)
    ]
    below = [name.removeprefix(prefix) for name in NAMES if name.startswith(prefix)]
    folders = {(prefix + name[: name.index("/") + 1], True) for name in below if "/" in name}
    files = {(prefix + name, False) for name in below if "/" not in name}
    assert len(found) == len(set(found))
    assert set(found) == folders | files


async def test_a_listing_begins_at_the_requested_name(listed: ContainerClient) -> None:
    for first in ("", "a/", "a/95", "many/05", "\uffff"):
        expected = [name for name in in_order(NAMES) if in_order([first, name])[0] == first]
        assert await names(listed, start_from=first, results_per_page=3) == expected


async def test_snapshots_are_listed_on_request(container: ContainerClient) -> None:
    await container.upload_blob("b", b"1")
    await container.upload_blob("a", b"1")
    assert await names(container) == ["a", "b"]
    await container.get_blob_client("a").create_snapshot()
    assert await names(container) == ["a", "b"]
    assert await names(container, include=["snapshots"]) == ["a", "a", "b"]


async def test_a_container_created_again_is_empty(container: ContainerClient) -> None:
    await container.upload_blob("a", b"1")
    assert await names(container) == ["a"]
    await container.delete_container()
    await container.create_container()
    assert await names(container) == []
    await container.upload_blob("b", b"1")
    assert await names(container) == ["b"]


async def test_snapshots_are_listed_oldest_first_before_their_blob(
    container: ContainerClient,
) -> None:
    """List Blobs: "snapshots are listed from oldest to newest", and the blob itself comes last."""
    expected: list[tuple[str, str | None]] = []
    for name in ("a", "b"):
        blob = await container.upload_blob(name, b"1")
        for content in (b"2", b"3"):
            snapshot = await blob.create_snapshot()
            expected.append((name, str(snapshot["snapshot"])))
            await blob.upload_blob(content, overwrite=True)
        expected.append((name, None))
    found = container.list_blobs(include=["snapshots"])
    assert [(each.name, each.snapshot) async for each in found] == expected
