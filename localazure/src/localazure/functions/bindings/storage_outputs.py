"""Outputs to storage: blobs and queues.

Sources: https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-blob-output,
https://learn.microsoft.com/azure/azure-functions/functions-bindings-storage-queue-output
"""

from __future__ import annotations

import json
import struct
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
        await service.upload(container, name, blob_content(value))

    async def put_messages(self, binding: Binding, value: Datum, setting: Setting) -> None:
        """Send one message or each message of an array."""
        from localazure.storage_client.queue import encode

        queue = await self._storage.queue(binding.connection, setting("queueName").lower())
        for content in messages_of(value):
            await queue.put(encode(content, is_base64=self._queue_options.is_base64))


def blob_content(value: Datum) -> bytes:
    """The content of a blob; a number becomes the bytes that the real host writes."""
    match value.value:
        case str() as text:
            return text.encode()
        case int() as number:
            return (number & 0xFFFFFFFF).to_bytes(4, "little")
        case float() as number:
            return struct.pack("<d", number)
        case content:
            return content


def messages_of(value: Datum) -> list[str | bytes]:
    """The messages of a value: each element of a list is one, as text or JSON.

    The SDK gives a QueueMessage as an object with the fields `id` and `body`.
    """
    if value.type != "json":
        return [value.value if isinstance(value.value, bytes) else str(value.value)]
    document: Any = json.loads(value.value)
    items = cast("list[Any]", document if isinstance(document, list) else [document])
    return [_message(item) for item in items]


def _message(item: Any) -> str:
    match item:
        case str():
            return item
        case {"id": _, "body": str(body)} if len(item) == len(("id", "body")):
            return body
        case _:
            return json.dumps(item)
