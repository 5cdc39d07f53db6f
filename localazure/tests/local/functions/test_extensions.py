"""Apps with the worker's extensions: FastAPI requests and responses, and blob clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from http.client import HTTPConnection
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.storage.blob.aio import BlobServiceClient

from harness.waiting import eventually
from localazure.storage.service import serve as serve_storage

# Apps install their extensions; the extensions of this app are in requirements-dev.txt.
pytest.importorskip("azurefunctions.extensions.http.fastapi")
pytest.importorskip("azurefunctions.extensions.bindings.blob")

# The first tests of this module need no blob functions.
NO_STORAGE = {
    "AzureWebJobs.measure.Disabled": "1",
    "AzureWebJobs.copy.Disabled": "1",
    "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "100000",
}


@pytest_asyncio.fixture
async def client(running_app: Any) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of the app, which runs without storage."""
    async with running_app("streaming", **NO_STORAGE) as (_, client):
        yield client


async def test_a_request_is_streamed_in(client: aiohttp.ClientSession) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(3):
            yield b"x" * 1000

    url = "/api/count/Ann?kind=k"
    async with client.post(url, data=pieces()) as response:
        assert response.status == 201
        assert response.headers["x-kind"] == "k"
        counted = await response.json()
        assert (counted["name"], counted["bytes"]) == ("Ann", 3000)
        assert counted["pieces"] >= 1
    async with client.post(url, data=b"x" * 100_001) as response:
        assert response.status == 413


async def test_a_response_is_streamed_out(client: aiohttp.ClientSession) -> None:
    async with asyncio.timeout(30), client.get("/api/feed") as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert await response.content.readline() == b"first\n"
        # The line arrives before the function ends.
        async with client.post("/api/go-on") as other:
            assert await other.json() == "on"
        assert await response.content.read() == b"second\n"


async def test_a_failure_is_told_without_details(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/fails") as response:
        assert response.status == 500
        assert await response.text() == "Internal Server Error"


async def test_a_stream_that_fails_has_no_end(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/breaks") as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_none_is_no_response(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/none") as response:
        assert response.status == 500


async def test_head_leaves_the_connection_usable(client: aiohttp.ClientSession) -> None:
    async with client.get("/api/more") as response:
        connection = HTTPConnection(response.url.authority, timeout=30)

    def exchange(method: str) -> bytes:
        connection.request(method, "/api/more")
        return connection.getresponse().read()

    for method in ("HEAD", "GET"):
        body = await asyncio.to_thread(exchange, method)
    assert body == b'"more"'
    connection.close()


async def test_other_apps_have_other_requests(running_app: Any) -> None:
    async with running_app("streaming", **NO_STORAGE):
        pass
    async with running_app("http") as (_, client), client.get("/api/hello/Ann") as response:
        assert await response.text() == "Hello, Ann!"


async def test_blobs_as_clients(running_app: Any, environment: Any) -> None:
    environment.storage_config.write_text('{"containers": ["from", "target"]}')
    connection = environment.storage_connection_string()
    async with (
        serve_storage(environment),
        BlobServiceClient.from_connection_string(connection) as service,
        running_app("streaming", AzureWebJobsStorage=connection) as (_, client),
    ):
        await service.get_blob_client("from", "a.txt").upload_blob(b"hello")
        async with client.get("/api/copy/a.txt") as response:
            assert await response.json() == "from"
        copied = await service.get_blob_client("target", "a.txt").download_blob()
        assert await copied.readall() == b"hello"
        size = service.get_blob_client("sizes", "a.txt")
        await eventually(size.exists)
        assert await (await size.download_blob()).readall() == b"5"
