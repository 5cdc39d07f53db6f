"""Sends to Service Bus from many threads, and parses received messages.

The SDK's senders are not thread-safe, opening one costs a connection, and closing one can block for
1 s. Each entity therefore has one sender, which stays open, and a lock.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from handlers.platform.bulkheads import SENDING
from orchestrations.contracts.base import Contract, unreadable
from orchestrations.platform.trace_context import HEADER

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

BLOB_EVENTS = "blob-events"
JOB_EVENTS = "job-events"
RETRIES = "retries"
SENT_AGAIN = "sent-again"
"""Property of a message on `retries` that is sent again when Service Bus has dead-lettered it."""
ROLLOUTS = "rollouts"
NOTIFICATIONS = "notifications"
REJECTED_RUNS = "rejected-runs"
OPS_ALERTS = "ops-alerts"
TOPICS = frozenset({OPS_ALERTS})
"""The topics; all other entities are queues."""
NODES_OFFERED = "Landfall.NodesOffered"
"""The type of the event on `job-events` that wakes a run which waits for nodes."""

# Long enough for the SDK's own three tries over a lost connection. It bounds a part of a send only:
# with a broker that accepts connections and never answers, the SDK does not return for minutes.
SEND_TIMEOUT_SECONDS = 30.0
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas (message ID)
MESSAGE_ID_LIMIT_CHARACTERS = 128

Parsed = TypeVar("Parsed", bound=Contract)


def fit_message_id(text: str) -> str:
    """`text` if it is short enough for a message id, otherwise its beginning and its hash."""
    if len(text) <= MESSAGE_ID_LIMIT_CHARACTERS:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    return f"{text[: MESSAGE_ID_LIMIT_CHARACTERS - len(digest) - 1]}:{digest}"


def traced(traceparent: str | None) -> dict[str, str]:
    """The application property for a message's trace context, named as in Azure's SDKs."""
    return {} if traceparent is None else {HEADER: traceparent}


def parse_body(contract: type[Parsed], body: bytes | str, *, queue: str) -> Parsed:
    """Parse the contract in the body of a message.

    Raises:
        InvalidRequest: it is malformed.
        OfAnotherRelease: it has a field or a value that this release does not know.
    """
    try:
        return contract.model_validate_json(body)
    except ValidationError as error:
        what = f"a message on queue {queue} is not a {contract.__name__}"
        raise unreadable(error, what, whole="body") from None


@dataclass(frozen=True, kw_only=True)
class Message:
    """A JSON document to send.

    The entities detect duplicates by `message_id`, also among scheduled messages, so sending a
    message again after a crash is harmless.
    https://learn.microsoft.com/azure/service-bus-messaging/duplicate-detection
    """

    message_id: str
    body: str
    subject: str | None = None
    properties: Mapping[str, str | int] = field(default_factory=dict[str, "str | int"])
    enqueue_at: datetime | None = None
    """When the message becomes visible (timezone-aware); immediately if None."""

    def __post_init__(self) -> None:
        if len(self.message_id) > MESSAGE_ID_LIMIT_CHARACTERS:
            raise ValueError(f"message id {self.message_id!r} is longer than 128 characters")

    def to_service_bus(self) -> ServiceBusMessage:
        """The message as an object of the SDK."""
        from azure.servicebus import ServiceBusMessage  # noqa: PLC0415 - as in handlers.platform.clients

        return ServiceBusMessage(
            self.body,
            message_id=self.message_id,
            subject=self.subject,
            application_properties={**self.properties},
            content_type="application/json",
            scheduled_enqueue_time_utc=self.enqueue_at,
        )


class MessageQueues:
    """The senders of a namespace. Thread-safe."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._senders: dict[str, _LockedSender] = {}
        self._lock = threading.Lock()

    def send(
        self, entity: str, *messages: Message, limit_seconds: float = SEND_TIMEOUT_SECONDS
    ) -> None:
        """Send to a queue or topic; return when the broker has accepted every message.

        Raises:
            Unavailable: the broker did not answer in time. It may accept them later.
            azure.servicebus.exceptions.ServiceBusError: the broker did not accept them, or may not
            have. Some may have been accepted; send all again.
        """
        with self._lock:
            sender = self._senders.setdefault(entity, _LockedSender(self._client, entity))
        SENDING.call_within(limit_seconds, sender.send, messages)


class _LockedSender:
    def __init__(self, client: ServiceBusClient, entity: str) -> None:
        self._client = client
        self._entity = entity
        self._lock = threading.Lock()
        self._sender: ServiceBusSender | None = None

    def send(self, messages: Iterable[Message]) -> None:
        with self._lock:
            if self._sender is None:
                self._sender = self._open()
            try:
                _send_in_batches(self._sender, [each.to_service_bus() for each in messages])
            except Exception:
                # After a timeout the SDK keeps a link that may be dead, so open a new sender next
                # time.
                broken, self._sender = self._sender, None
                with contextlib.suppress(Exception):
                    broken.close()
                raise

    def _open(self) -> ServiceBusSender:
        if self._entity in TOPICS:
            return self._client.get_topic_sender(self._entity)
        return self._client.get_queue_sender(self._entity)


def _send_in_batches(sender: ServiceBusSender, messages: list[ServiceBusMessage]) -> None:
    """Send the messages in as few batches as the entity's maximum size allows."""
    from azure.servicebus.exceptions import (  # noqa: PLC0415 - as in handlers.platform.clients
        MessageSizeExceededError,
    )

    if len(messages) == 1:
        sender.send_messages(messages[0], timeout=SEND_TIMEOUT_SECONDS)
        return
    batch = sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            if not len(batch):
                raise
            sender.send_messages(batch, timeout=SEND_TIMEOUT_SECONDS)
            batch = sender.create_message_batch()
            batch.add_message(message)
    if len(batch):
        sender.send_messages(batch, timeout=SEND_TIMEOUT_SECONDS)
