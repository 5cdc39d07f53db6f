"""Several accounts, each with its kind, its key and its data, observed with the SDKs."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import pytest_asyncio
from azure.core.exceptions import (
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.storage.blob import (
    ContainerSasPermissions,
    StandardBlobTier,
    generate_container_sas,
)
from azure.storage.blob.aio import BlobServiceClient
from azure.storage.queue.aio import QueueServiceClient

from localazure.runtime.environment import Environment
from localazure.storage.service import serve
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import Endpoint, Request, Service, StorageError

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCOUNTS = [
    {"name": "premium", "kind": "BlockBlobStorage", "containers": ["landing"]},
    {"name": "standard", "containers": ["landing"], "hasSystemTopic": False},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def storage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Environment]:
    folder = tmp_path_factory.mktemp("accounts")
    environment = Environment.draw(folder / "state", app=folder, config=folder)
    environment.storage_config.write_text(json.dumps({"accounts": ACCOUNTS}))
    async with serve(environment):
        yield environment


def blobs(storage: Environment, account: str) -> BlobServiceClient:
    return BlobServiceClient.from_connection_string(
        storage.storage_connection_string(account), retry_total=0
    )


def tables_of(session: aiohttp.ClientSession, storage: Environment, account: str) -> StorageClient:
    return StorageClient(
        session,
        Endpoint(
            url=f"http://127.0.0.1:{storage.ports.table}/{account}",
            service=Service.TABLE,
            account=account,
            key=storage.storage_key(account),
        ),
    )


async def test_accounts_hold_their_own_blobs(storage: Environment) -> None:
    async with blobs(storage, "premium") as premium, blobs(storage, "standard") as standard:
        await premium.get_blob_client("landing", "a").upload_blob(b"x")
        assert [found.name async for found in standard.list_containers()] == ["landing"]
        with pytest.raises(ResourceNotFoundError):
            await standard.get_blob_client("landing", "a").get_blob_properties()


async def test_a_key_is_for_one_account(storage: Environment) -> None:
    url = f"http://127.0.0.1:{storage.ports.blob}/premium"
    key = {"account_name": "premium", "account_key": storage.storage_key("standard")}
    async with BlobServiceClient(url, credential=key, retry_total=0) as client:
        with pytest.raises(HttpResponseError, match="ErrorCode:AuthenticationFailed") as refused:
            await client.get_service_properties()
    assert refused.value.status_code == 403


@pytest.mark.parametrize(("signer", "status"), [("standard", None), ("premium", 403)])
async def test_a_sas_is_for_one_account(
    storage: Environment, signer: str, status: int | None
) -> None:
    sas = generate_container_sas(
        "standard",
        "landing",
        account_key=storage.storage_key(signer),
        permission=ContainerSasPermissions(write=True, create=True),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    url = f"http://127.0.0.1:{storage.ports.blob}/standard"
    async with BlobServiceClient(url, credential=sas, retry_total=0) as client:
        blob = client.get_blob_client("landing", uuid.uuid4().hex)
        try:
            await blob.upload_blob(b"x")
            answered = None
        except HttpResponseError as error:
            answered = error.status_code
        assert answered == status


async def test_premium_block_blobs_have_no_tiers_and_no_page_blobs(storage: Environment) -> None:
    async with blobs(storage, "premium") as client:
        blob = client.get_blob_client("landing", "tiers")
        await blob.upload_blob(b"x")
        with pytest.raises(HttpResponseError) as refused:
            await blob.set_standard_blob_tier(StandardBlobTier.COOL)
        assert refused.value.error_code == "BlobAccessTierNotSupportedForAccountType"  # type: ignore[attr-defined] - the SDK adds it
        with pytest.raises(HttpResponseError, match="BlobAccessTierNotSupportedForAccountType"):
            await blob.upload_blob(b"y", overwrite=True, standard_blob_tier=StandardBlobTier.COOL)
        with pytest.raises(HttpResponseError, match="BlobTypeNotSupported"):
            await client.get_blob_client("landing", "pages").create_page_blob(512)
        await client.get_blob_client("landing", "appended").create_append_blob()
    async with blobs(storage, "standard") as client:
        blob = client.get_blob_client("landing", "tiers")
        await blob.upload_blob(b"x", standard_blob_tier=StandardBlobTier.COOL)
        assert (await blob.get_blob_properties()).blob_tier == "Cool"


async def test_premium_block_blob_accounts_have_neither_queues_nor_tables(
    storage: Environment,
) -> None:
    premium = storage.storage_connection_string("premium")
    async with QueueServiceClient.from_connection_string(premium, retry_total=0) as queues:
        with pytest.raises(ResourceNotFoundError, match="no queue service"):
            await queues.create_queue("tasks")
    async with aiohttp.ClientSession() as session:
        tables = tables_of(session, storage, "premium")
        with pytest.raises(StorageError, match="ResourceNotFound"):
            await tables.send(Request("GET", "Tables"))


async def test_standard_accounts_have_queues_and_tables(storage: Environment) -> None:
    standard = storage.storage_connection_string("standard")
    async with QueueServiceClient.from_connection_string(standard) as queues:
        queue = await queues.create_queue("tasks")
        await queue.send_message("<&>")
        assert [message.content async for message in queue.receive_messages()] == ["<&>"]
    async with aiohttp.ClientSession() as session:
        tables = tables_of(session, storage, "standard")
        sent = {"content-type": "application/json", "accept": "application/json"}
        await tables.send(Request("POST", "Tables", {}, sent, b'{"TableName": "Things"}'))
        answer = await tables.send(Request("GET", "Tables", {}, {"accept": "application/json"}))
        assert [found["TableName"] for found in json.loads(answer.body)["value"]] == ["Things"]
