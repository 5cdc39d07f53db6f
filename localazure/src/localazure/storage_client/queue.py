"""Storage queues, as far as bindings and Event Grid need them.

Source: https://learn.microsoft.com/rest/api/storageservices/operations-on-messages
"""

from __future__ import annotations

import base64
import binascii
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape

from localazure.storage_client.rest import StorageError, StorageRest

# The service's own limit.
MAX_MESSAGES_PER_REQUEST: Final = 32


@dataclass(frozen=True, kw_only=True)
class ReceivedMessage:
    """A message, hidden from others for a while."""

    id: str
    text: str
    """As it lies in the queue, possibly base64."""
    pop_receipt: str
    dequeue_count: int
    """This time included."""
    inserted_at: datetime
    expires_at: datetime
    next_visible_at: datetime


class StorageQueue:
    """One queue."""

    def __init__(self, service: StorageRest, name: str) -> None:
        self._service = service
        self._path = f"/{quote(name)}"
        self.name = name

    async def create(self) -> None:
        """Make it unless it exists; see `StorageRest.request` for what this and all else raise."""
        try:
            await self._service.request("PUT", self._path)
        except StorageError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    async def put(self, text: str, *, time_to_live_s: int | None = None) -> None:
        """Add a message, and the queue where there is none yet, as the real host does.

        Args:
            text: of the message.
            time_to_live_s: -1 keeps it for ever; None is the service's default, a week.
        """
        query = {} if time_to_live_s is None else {"messagettl": str(time_to_live_s)}
        body = f"<QueueMessage><MessageText>{escape(text)}</MessageText></QueueMessage>".encode()
        try:
            await self._service.request("POST", f"{self._path}/messages", query, body=body)
        except StorageError as error:
            if error.code != "QueueNotFound":
                raise
            await self.create()
            await self._service.request("POST", f"{self._path}/messages", query, body=body)

    async def receive(self, count: int, visibility_timeout_seconds: int) -> list[ReceivedMessage]:
        """Up to so many messages, hidden from others for so long; none if there is no queue."""
        query = {
            "numofmessages": str(count),
            "visibilitytimeout": str(visibility_timeout_seconds),
        }
        try:
            answer = await self._service.request("GET", f"{self._path}/messages", query)
        except StorageError as error:
            if error.code == "QueueNotFound":
                return []
            raise
        return [_message(item) for item in ET.fromstring(answer.body)]  # noqa: S314 - from the account itself

    async def delete(self, message_id: str, pop_receipt: str) -> None:
        """Remove a message that was received."""
        await self._service.request(
            "DELETE", self._message_path(message_id), {"popreceipt": pop_receipt}
        )

    async def hide(self, message_id: str, pop_receipt: str, seconds: int) -> str:
        """Keep a message hidden for so long from now, 0 to show it; its new pop receipt."""
        answer = await self._service.request(
            "PUT",
            self._message_path(message_id),
            {"popreceipt": pop_receipt, "visibilitytimeout": str(seconds)},
        )
        return answer.headers["x-ms-popreceipt"]

    def _message_path(self, message_id: str) -> str:
        return f"{self._path}/messages/{quote(message_id)}"


def _message(item: ET.Element) -> ReceivedMessage:
    def field(name: str) -> str:
        return item.findtext(name, "")

    def moment(name: str) -> datetime:
        return parsedate_to_datetime(field(name))

    return ReceivedMessage(
        id=field("MessageId"),
        text=field("MessageText"),
        pop_receipt=field("PopReceipt"),
        dequeue_count=int(field("DequeueCount")),
        inserted_at=moment("InsertionTime"),
        expires_at=moment("ExpirationTime"),
        next_visible_at=moment("TimeNextVisible"),
    )


def encode(content: str | bytes, *, is_base64: bool) -> str:
    """A message's text for what a function gave.

    Args:
        content: text or bytes.
        is_base64: host.json's `extensions.queues.messageEncoding`.

    Raises:
        UnicodeDecodeError: without base64, bytes must be UTF-8.
    """
    if is_base64:
        return base64.b64encode(content.encode() if isinstance(content, str) else content).decode()
    return content if isinstance(content, str) else content.decode()


def decode(text: str, *, is_base64: bool) -> str | bytes:
    """What a function is given for a message's text: text, or bytes that are none.

    Raises:
        ValueError: it should be base64 and is not.
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
