"""Requests that name the account in the host name or in the `Authorization` header."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import BlobServiceClient, ContainerClient
from yarl import URL

from localazure.runtime.environment import STORAGE_ACCOUNT, Environment

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAME = "folder/ä b%20c.txt"


def origin(storage: Environment) -> str:
    return f"http://127.0.0.1:{storage.ports.blob_by_host}"


def client(storage: Environment, account: str = STORAGE_ACCOUNT) -> BlobServiceClient:
    """A client whose signatures, but not its URL, name the account."""
    key = {"account_name": account, "account_key": storage.storage_key()}
    return BlobServiceClient(origin(storage), credential=key, retry_total=0)


async def test_the_key_names_the_account(
    storage: Environment, container: ContainerClient, events: Any
) -> None:
    content = b"x" * 100_000
    async with client(storage) as service:
        named = service.get_container_client(container.container_name)
        await named.upload_blob(NAME, content)
        listed = [blob.name async for blob in named.list_blobs(name_starts_with="folder/")]
        assert listed == [NAME]
        assert await (await named.download_blob(NAME)).readall() == content
    assert await (await container.download_blob(NAME)).readall() == content
    (event,) = await events.wait_for(1)
    assert event["subject"].endswith(f"/blobs/{NAME}")


async def test_a_key_of_another_account_is_refused(storage: Environment) -> None:
    async with client(storage, account="lake") as service:
        with pytest.raises(HttpResponseError, match="ErrorCode:AuthenticationFailed") as refused:
            await service.get_service_properties()
    assert refused.value.status_code == 403


async def test_a_host_names_the_account_of_a_sas(
    storage: Environment, container: ContainerClient
) -> None:
    await container.upload_blob("a", b"content")
    sas = generate_container_sas(
        STORAGE_ACCOUNT,
        container.container_name,
        account_key=storage.storage_key(),
        permission=ContainerSasPermissions(read=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    path = f"{container.container_name}/a?{sas}"
    # The name may not resolve on this machine.
    host = {"Host": f"{STORAGE_ACCOUNT}.blob.localhost"}
    async with aiohttp.ClientSession() as session:
        for port in (storage.ports.blob_by_host, storage.ports.blob):
            url = URL(f"http://127.0.0.1:{port}/{path}", encoded=True)
            async with session.get(url, headers=host) as answer:
                assert await answer.read() == b"content"
        async with session.get(URL(f"{origin(storage)}/{path}", encoded=True)) as answer:
            assert answer.status == 400
            assert "names no account" in await answer.text()
