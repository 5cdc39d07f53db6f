"""Clients of the storage accounts that an app's bindings name, opened at first use.

SDKs are imported at first use, too: each import takes a tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from localazure.functions.configuration import connections
from localazure.functions.configuration.storage_connection import find_endpoint
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import Endpoint, Service

if TYPE_CHECKING:
    from azure.storage.queue.aio import QueueServiceClient

    from localazure.storage_client.queue import StorageQueue

BLOB_PAUSES_SECONDS: Final = (0.8, 1.6, 3.2)
"""As Azure.Core repeats a request. What the host sends to the Blob service may be repeated."""


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

    async def blobs(self, connection: str) -> StorageClient:
        """The Blob service of a connection."""
        return await self._client(connection, Service.BLOB, self._open)

    async def queue(self, connection: str, name: str) -> StorageQueue:
        """A queue of a connection."""
        from localazure.storage_client.queue import StorageQueue

        return StorageQueue(await self._client(connection, Service.QUEUE, self._open_queues), name)

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

    async def _open_queues(self, endpoint: Endpoint) -> QueueServiceClient:
        from azure.storage.queue.aio import QueueServiceClient

        from localazure.storage_client.queue import CLIENT_OPTIONS

        credential: Any = endpoint.sas
        if endpoint.key is not None:
            credential = {"account_name": endpoint.account, "account_key": endpoint.key}
        elif endpoint.needs_identity:
            credential = await self._identity(endpoint)
        return await self._resources.enter_async_context(
            QueueServiceClient(endpoint.url, credential=credential, **CLIENT_OPTIONS)
        )

    async def _open(self, endpoint: Endpoint) -> StorageClient:
        credential = await self._identity(endpoint) if endpoint.needs_identity else None
        # aiohttp created its default context at import, without the app's SSL_CERT_FILE.
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context())
        session = await self._resources.enter_async_context(
            aiohttp.ClientSession(connector=connector)
        )
        return StorageClient(session, endpoint, credential, pauses_seconds=BLOB_PAUSES_SECONDS)

    async def _identity(self, endpoint: Endpoint) -> Any:
        return await self._resources.enter_async_context(
            connections.identity(endpoint.connection, self._settings)
        )
