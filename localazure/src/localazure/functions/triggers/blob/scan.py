"""Blob triggers that poll: lists a container to find blobs that a function has not processed.

Like the real extension, a scan records each blob version (ETag) that it finds by a receipt: an
empty blob in the container `azure-webjobs-hosts`. If a receipt is deleted, the blob is processed
again. A blob is announced before its receipt is written, so that a crash loses no blob.

The real extension also reads the account's logs, which Azurite does not have.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob-trigger#blob-receipts
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from localazure.functions import logs
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration.storage_connection import (
    DEFAULT_CONNECTION,
    HOSTS_CONTAINER,
)
from localazure.processes.pauses import wait_at_most
from localazure.storage_client.blobs import Blob
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import StorageError

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.blob")

# The interval of the real extension (ScanBlobScanLogHybridPollingStrategy).
POLL_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0


@dataclass(kw_only=True)
class BlobScan:
    """Polls a container for one function."""

    connection: str
    container: str
    receipts: str
    """The folder of the function's receipts."""
    concerns: Callable[[str], bool]
    """Whether a blob's name matches the function's path."""
    announce: Callable[[Blob], Awaitable[None]]
    """Stores the blob durably, to be processed."""
    storage: StorageClients

    def __post_init__(self) -> None:
        self._seen: set[tuple[str, str]] | None = None
        """Names and ETags of the announced blobs; None until the receipts are read."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start scanning."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop scanning."""
        self._stopping.set()
        if self._task is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._task, _STOP_SECONDS)

    async def finish(self) -> None:
        """Do nothing: the announced blobs are in the queue."""

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            try:
                await self.scan()
            except Exception as error:  # noqa: BLE001 - on any error of storage, scan again
                _LOG.warning("cannot scan the container %s: %s", self.container, error)
            # Listing a large container takes long: spend at most half of the time on it.
            pause_seconds = max(POLL_SECONDS, loop.time() - started)
            await wait_at_most(self._stopping, pause_seconds)

    async def scan(self) -> None:
        """Scan the container once.

        Raises:
            StorageError: storage did not respond, or refused a request.
        """
        receipts = await self.storage.blobs(DEFAULT_CONNECTION)
        if self._seen is None:
            self._seen = await self._read_receipts(receipts)
        service = await self.storage.blobs(self.connection)
        for blob in await service.list_blobs(self.container):
            if self._stopping.is_set():
                return
            if (blob.name, blob.etag) in self._seen or not self.concerns(blob.name):
                continue
            await self.announce(blob)
            name = f'{self.receipts}/"{blob.etag}"/{self.container}/{blob.name}'
            try:
                await receipts.upload(HOSTS_CONTAINER, name, b"")
            except StorageError as error:
                _LOG.warning("no receipt for %s/%s: %s", self.container, blob.name, error)
            self._seen.add((blob.name, blob.etag))

    async def _read_receipts(self, service: StorageClient) -> set[tuple[str, str]]:
        prefix = f"{self.receipts}/"
        seen: set[tuple[str, str]] = set()
        for receipt in await service.list_blobs(HOSTS_CONTAINER, prefix):
            etag, container, blob = receipt.name.removeprefix(prefix).split("/", 2)
            if container == self.container:
                seen.add((blob, etag.strip('"')))
        return seen
