"""Clients of the storage accounts that an app's bindings name, opened at first use.

SDKs are imported at first use, too: each import takes a tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from localazure.functions.bindings.storage_table import StorageTable
from localazure.functions.configuration import connections
from localazure.functions.configuration.storage_connection import find_endpoint
from localazure.storage_client.rest import Endpoint, StorageRest
from localazure.storage_client.service import Service

if TYPE_CHECKING:
    from azure.storage.blob.aio import BlobServiceClient, ContainerClient
    from azure.storage.queue.aio import QueueServiceClient

    from localazure.storage_client.queue import StorageQueue


async def upload_blob(container: ContainerClient, name: str, content: Any) -> None:
    """Upload or overwrite a blob; create the container if it is missing.

    Raises:
        AzureError: storage did not respond, or refused the request.
    """
    from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

    try:
        await container.upload_blob(name, content, overwrite=True)
    except ResourceNotFoundError:
        with contextlib.suppress(ResourceExistsError):  # another client just created it
            await container.create_container()
        await container.upload_blob(name, content, overwrite=True)


class StorageClients:
    """One client for each service of each connection, kept open until `close`.

    All methods raise ValueError if the connection is not configured.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._resources = contextlib.AsyncExitStack()
        self._opened: dict[tuple[str, str], Any] = {}
        self._opening = asyncio.Lock()

    def check(self, connection: str, service: Service) -> None:
        """Check that a connection is configured."""
        find_endpoint(connection, service, self._settings)

    async def blobs(self, connection: str) -> BlobServiceClient:
        """The Blob service of a connection."""
        return await self._client(connection, Service.BLOB, self._open_blobs)

    async def queue(self, connection: str, name: str) -> StorageQueue:
        """A queue of a connection."""
        from localazure.storage_client.queue import StorageQueue

        return StorageQueue(await self._client(connection, Service.QUEUE, self._open_queues), name)

    async def table(self, connection: str, name: str) -> StorageTable:
        """A table of a connection."""
        return StorageTable(await self._client(connection, Service.TABLE, self._open_tables), name)

    async def close(self) -> None:
        """Close every client."""
        await self._resources.aclose()

    async def _client(
        self, connection: str, service: Service, open_client: Callable[[Endpoint], Awaitable[Any]]
    ) -> Any:
        endpoint = find_endpoint(connection, service, self._settings)
        key = (endpoint.connection, service)
        async with self._opening:
            if key not in self._opened:
                self._opened[key] = await open_client(endpoint)
        return self._opened[key]

    async def _open_blobs(self, endpoint: Endpoint) -> BlobServiceClient:
        from azure.storage.blob.aio import BlobServiceClient

        return await self._resources.enter_async_context(
            BlobServiceClient(endpoint.url, credential=await self._credential(endpoint))
        )

    async def _open_queues(self, endpoint: Endpoint) -> QueueServiceClient:
        from azure.storage.queue.aio import QueueServiceClient

        from localazure.storage_client.queue import CLIENT_OPTIONS

        credential = await self._credential(endpoint)
        return await self._resources.enter_async_context(
            QueueServiceClient(endpoint.url, credential=credential, **CLIENT_OPTIONS)
        )

    async def _open_tables(self, endpoint: Endpoint) -> StorageRest:
        credential = await self._identity(endpoint) if endpoint.needs_identity else None
        # aiohttp created its default context at import, without the app's SSL_CERT_FILE.
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        session = await self._resources.enter_async_context(
            aiohttp.ClientSession(connector=connector)
        )
        return StorageRest(session, endpoint, credential)

    async def _credential(self, endpoint: Endpoint) -> Any:
        if endpoint.key is not None:
            return {"account_name": endpoint.account, "account_key": endpoint.key}
        return await self._identity(endpoint) if endpoint.needs_identity else endpoint.sas

    async def _identity(self, endpoint: Endpoint) -> Any:
        return await self._resources.enter_async_context(
            connections.identity(endpoint.connection, self._settings)
        )
