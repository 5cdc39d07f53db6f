"""The proxy changes nothing: compares requests to Azurite, direct and through the proxy."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from azure.storage.blob import BlobSasPermissions, generate_blob_sas
from azure.storage.blob.aio import ContainerClient
from yarl import URL

from localazure.runtime.environment import STORAGE_ACCOUNT, STORAGE_KEY, Environment

ODD_NAMES = [
    "plain",
    "sp ace",
    "plus+plus",
    "per%cent",
    "pct%20twenty",
    "a//b",
    "q?u&e=ry",
    "hash#tag",
    "ünïcödé/日本",
    "dots...",
    "tilde~'quote",
    "trailing/",
]


pytestmark = pytest.mark.asyncio(loop_scope="session")


def sas_url(container: ContainerClient, name: str, port: int) -> str:
    token = generate_blob_sas(
        STORAGE_ACCOUNT,
        container.container_name,
        name,
        account_key=STORAGE_KEY,
        permission=BlobSasPermissions(read=True, write=True, create=True, delete=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    return f"http://127.0.0.1:{port}/{STORAGE_ACCOUNT}/{container.container_name}/{name}?{token}"


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_odd_names(container: ContainerClient, name: str) -> None:
    content = name.encode()
    await container.upload_blob(name, content)
    assert name in [found async for found in container.list_blob_names()]
    downloader = await container.get_blob_client(name).download_blob()
    assert await downloader.readall() == content
    await container.delete_blob(name)


async def test_head_and_get_answer_as_azurite_does(
    storage: Environment, container: ContainerClient
) -> None:
    await container.upload_blob("same", b"x" * 100_000)
    varying = {"x-ms-request-id", "Date", "Connection", "Keep-Alive"}
    async with aiohttp.ClientSession() as session:
        for method in ("HEAD", "GET", "DELETE", "GET"):
            found: list[tuple[int, dict[str, str], int]] = []
            for port in (storage.ports.azurite_blob, storage.ports.blob):
                if method == "DELETE":
                    await container.upload_blob("same", b"x", overwrite=True)
                url = URL(sas_url(container, "same", port), encoded=True)
                async with session.request(method, url) as response:
                    headers = {
                        name: value
                        for name, value in response.headers.items()
                        if name not in varying
                    }
                    found.append((response.status, headers, len(await response.read())))
            direct, proxied = found
            if method == "GET" and direct[0] == 404:
                # aiohttp and Azurite send the length of an error body differently.
                assert (proxied[0], proxied[2]) == (direct[0], direct[2])
            else:
                assert proxied == direct


async def test_chunked_body_and_expect_continue(
    storage: Environment, container: ContainerClient
) -> None:
    async def pieces() -> object:
        for _ in range(5):
            yield b"x" * 50_000

    url = URL(sas_url(container, "chunked", storage.ports.blob), encoded=True)
    headers = {"x-ms-blob-type": "BlockBlob"}
    async with aiohttp.ClientSession() as session:
        # Put Blob needs a Content-Length: the proxy forwards Azurite's answer to a chunked body.
        async with session.put(url, data=pieces(), headers=headers) as response:
            chunked = response.status
        direct = URL(sas_url(container, "chunked", storage.ports.azurite_blob), encoded=True)
        async with session.put(direct, data=pieces(), headers=headers) as response:
            assert response.status == chunked
        async with session.put(url, data=b"y" * 9000, headers=headers, expect100=True) as response:
            assert response.status == 201
        async with session.get(url) as response:
            assert await response.read() == b"y" * 9000


async def test_an_aborted_upload_leaves_no_blob_and_no_event(
    storage: Environment, container: ContainerClient
) -> None:
    path = sas_url(container, "broken", storage.ports.blob).partition(str(storage.ports.blob))[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", storage.ports.blob)
    head = (
        f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-ms-blob-type: BlockBlob\r\n"
        "Content-Length: 1000000\r\n\r\n"
    )
    writer.write(head.encode() + b"z" * 300_000)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    await container.upload_blob("after", b"x")
    assert [name async for name in container.list_blob_names()] == ["after"]
