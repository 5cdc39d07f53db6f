"""Outputs to storage: blobs and queues.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob-output,
https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-output
"""

from __future__ import annotations

import json
from typing import Any, cast

from azure.functions.meta import Datum

from localazure.functions.app.signature import Binding
from localazure.functions.bindings.inputs import split_path
from localazure.functions.bindings.storage_clients import StorageClients
from localazure.functions.configuration.host_json import QueueOptions
from localazure.functions.worker.invocation import Setting


class StorageOutputs:
    """Writes functions' outputs; creates a missing container or queue."""

    def __init__(self, storage: StorageClients, queue_options: QueueOptions) -> None:
        self._storage = storage
        self._queue_options = queue_options

    async def write_blob(self, binding: Binding, value: Datum, setting: Setting) -> None:
        """Upload or overwrite a blob."""
        container, name = split_path(setting("path"))
        service = await self._storage.blobs(binding.connection)
        content = value.value
        await service.upload(
            container, name, content.encode() if isinstance(content, str) else content
        )

    async def put_messages(self, binding: Binding, value: Datum, setting: Setting) -> None:
        """Send one message or each message of an array."""
        from localazure.storage_client.queue import encode

        queue = await self._storage.queue(binding.connection, setting("queueName").lower())
        for content in queue_contents(value):
            await queue.put(encode(content, is_base64=self._queue_options.is_base64))


def queue_contents(value: Datum) -> list[str | bytes]:
    """The messages of a value: text, bytes, or the SDK's JSON of QueueMessages and lists."""
    if value.type != "json":
        return [value.value]
    document: Any = json.loads(value.value)
    items = cast("list[Any]", document if isinstance(document, list) else [document])
    return [item["body"] if isinstance(item, dict) else str(item) for item in items]
