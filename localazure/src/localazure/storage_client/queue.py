"""Storage queues for bindings and Event Grid, over azure-storage-queue."""

from __future__ import annotations

import base64
import binascii
import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueServiceClient

# The service's limit.
MAX_MESSAGES_PER_REQUEST: Final = 32
# The callers retry: the SDK's own retries would delay the report of an outage by a minute.
CLIENT_OPTIONS: Final[dict[str, Any]] = {
    "retry_total": 0,
    "connection_timeout": 5,
    "read_timeout": 30,
}


@dataclass(frozen=True, kw_only=True)
class ReceivedMessage:
    """A received message, invisible to other receivers for its visibility timeout."""

    id: str
    text: str
    """The text as stored, possibly base64."""
    pop_receipt: str
    dequeue_count: int
    """Number of deliveries, with the present one."""
    inserted_at: datetime
    expires_at: datetime
    next_visible_at: datetime


class StorageQueue:
    """One queue. All methods raise `azure.core.exceptions.AzureError`."""

    def __init__(self, service: QueueServiceClient, name: str) -> None:
        self._client = service.get_queue_client(name)
        self.name = name

    async def put(self, text: str, *, time_to_live_seconds: int | None = None) -> None:
        """Add a message; create a missing queue, as the real host does.

        Args:
            text: the message's text.
            time_to_live_seconds: -1 means no limit, None the service's default of a week.
        """
        try:
            await self._client.send_message(text, time_to_live=time_to_live_seconds)
        except ResourceNotFoundError:
            with contextlib.suppress(ResourceExistsError):  # another client has created it
                await self._client.create_queue()
            await self._client.send_message(text, time_to_live=time_to_live_seconds)

    async def receive(self, count: int, visibility_timeout_seconds: int) -> list[ReceivedMessage]:
        """Receive up to `count` messages and hide them for a time; none if there is no queue."""
        messages = self._client.receive_messages(
            max_messages=count,
            messages_per_page=min(count, MAX_MESSAGES_PER_REQUEST),
            visibility_timeout=visibility_timeout_seconds,
        )
        try:
            return [_received(message) async for message in messages]
        except ResourceNotFoundError:
            return []

    async def delete(self, message_id: str, pop_receipt: str) -> None:
        """Delete a received message."""
        await self._client.delete_message(message_id, pop_receipt)

    async def hide(self, message_id: str, pop_receipt: str, seconds: int) -> str:
        """Set the visibility timeout of a message from now. Returns its new pop receipt."""
        message = await self._client.update_message(
            message_id, pop_receipt, visibility_timeout=seconds
        )
        assert message.pop_receipt is not None  # every update returns one
        return message.pop_receipt


def _received(message: QueueMessage) -> ReceivedMessage:
    assert message.pop_receipt is not None  # a received message has all of these fields
    assert message.dequeue_count is not None
    assert message.inserted_on is not None
    assert message.expires_on is not None
    assert message.next_visible_on is not None
    return ReceivedMessage(
        id=message.id,
        text=message.content,
        pop_receipt=message.pop_receipt,
        dequeue_count=message.dequeue_count,
        inserted_at=message.inserted_on,
        expires_at=message.expires_on,
        next_visible_at=message.next_visible_on,
    )


def encode(content: str | bytes, *, is_base64: bool) -> str:
    """Encode the text of a message.

    Args:
        content: text or bytes.
        is_base64: host.json's `extensions.queues.messageEncoding`.

    Raises:
        UnicodeDecodeError: the bytes are not UTF-8, and base64 is off.
    """
    if is_base64:
        return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
    return content if isinstance(content, str) else content.decode()


def decode(text: str, *, is_base64: bool) -> str | bytes:
    """Decode a message: text, or bytes if they are not UTF-8.

    Raises:
        ValueError: the text is not base64.
    """
    if not is_base64:
        return text
    try:
        content = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
