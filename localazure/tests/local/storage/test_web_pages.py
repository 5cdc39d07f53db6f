"""Web pages and storage: only what the CORS rules of an account allow, on every port."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from azure.storage.blob.aio import BlobServiceClient, ContainerClient
from azure.storage.queue import (
    AccountSasPermissions,
    CorsRule,
    ResourceTypes,
    generate_account_sas,
)
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from localazure.runtime.environment import STORAGE_ACCOUNT, STORAGE_KEY, Environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
IMAGE = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
MESSAGE = "<QueueMessage><MessageText>x</MessageText></QueueMessage>"
SAS = generate_account_sas(
    STORAGE_ACCOUNT,
    STORAGE_KEY,
    ResourceTypes(service=True, container=True, object=True),
    AccountSasPermissions(read=True, write=True, add=True, process=True),
    datetime.now(UTC) + timedelta(hours=1),
    services="bqt",
)


def connection_string(storage: Environment, *, is_direct: bool) -> str:
    text, ports = storage.storage_connection_string(), storage.ports
    if is_direct:  # to Azurite, which must refuse pages by itself
        text = text.replace(f":{ports.blob}/", f":{ports.azurite_blob}/")
        text = text.replace(f":{ports.queue}/", f":{ports.azurite_queue}/")
    return text


@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_page_writes_no_message_unless_a_cors_rule_allows_its_origin(
    storage: Environment, caplog: pytest.LogCaptureFixture, *, is_direct: bool
) -> None:
    text = connection_string(storage, is_direct=is_direct)
    name = f"q{uuid.uuid4().hex}"
    async with (
        QueueServiceClient.from_connection_string(text) as service,
        QueueClient.from_connection_string(text, name) as queue,
        aiohttp.ClientSession() as session,
    ):
        await queue.create_queue()
        url = f"{queue.url}/messages?{SAS}"

        async def status(headers: dict[str, str], method: str = "POST") -> int:
            data = MESSAGE if method == "POST" else None
            async with session.request(method, url, data=data, headers=headers) as response:
                text = await response.text()
                if response.status == 403:
                    assert "<Code>CorsPreflightFailure</Code>" in text or "no name" in text
                return response.status

        assert await status({}) == 201
        assert await status(EVIL) == 403
        assert await status({"Origin": "null"}) == 403
        assert await status({"Host": "evil.example"}) == 403
        assert await status(IMAGE, "GET") == 403  # it would take messages
        assert (await queue.get_queue_properties()).approximate_message_count == 1
        is_told = "'https://evil.example' sent this request: allow its origin" in caplog.text
        assert is_told is not is_direct  # Azurite's own log has it
        rule = CorsRule(["https://good.example"], ["POST"], max_age_in_seconds=5)
        await service.set_service_properties(cors=[rule])
        assert await status({**EVIL, "Origin": "https://good.example"}) == 201
        assert await status({**EVIL, "Origin": "https://good.example"}, "GET") == 403
        assert await status(EVIL) == 403
        await service.set_service_properties(cors=[])


@pytest.mark.parametrize("is_direct", [False, True])
async def test_a_page_shows_a_blob_and_writes_none(
    storage: Environment, container: ContainerClient, *, is_direct: bool
) -> None:
    await container.upload_blob("picture", b"x")
    text = connection_string(storage, is_direct=is_direct)
    async with (
        BlobServiceClient.from_connection_string(text) as service,
        aiohttp.ClientSession() as session,
    ):
        blob = service.get_blob_client(container.container_name, "picture")
        url = f"{blob.url}?{SAS}"
        async with session.get(url, headers=IMAGE) as response:
            assert (response.status, await response.read()) == (200, b"x")
        put = {"x-ms-blob-type": "BlockBlob", **EVIL}
        async with session.put(url, data=b"evil", headers=put) as response:
            assert response.status == 403
            assert response.headers["x-ms-error-code"] == "CorsPreflightFailure"
        async with session.get(f"{service.url}?comp=list&{SAS}", headers=EVIL) as response:
            assert response.status == 403
    ports = storage.ports
    async with aiohttp.ClientSession() as session:
        port = ports.azurite_table if is_direct else ports.table
        url = f"http://127.0.0.1:{port}/{STORAGE_ACCOUNT}/Tables?{SAS}"
        async with session.post(url, data="{}", headers=EVIL) as response:
            error = json.loads(await response.text())["odata.error"]
            assert (response.status, error["code"]) == (403, "CorsPreflightFailure")
