"""Service Bus messages: from what a sender put on the wire, and to what a receiver gets.

The broker's own properties of a message are message annotations `x-opt-*`, see
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp.performatives import MAX_UINT, Header, Properties
from localazure.servicebus.amqp.types import Int, Symbol, Timestamp
from localazure.servicebus.filters import MessageFacts
from localazure.servicebus.store import StoredMessage

# A transfer whose data sections are messages themselves, to be taken all or none.
BATCH_MESSAGE_FORMAT = 0x80013700

SCHEDULED_ENQUEUE_TIME = Symbol("x-opt-scheduled-enqueue-time")
SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
MESSAGE_STATE = Symbol("x-opt-message-state")
DEAD_LETTER_SOURCE = Symbol("x-opt-deadletter-source")

DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as its sender gave it, as far as the broker decides by it."""

    annotations: dict[Any, Any]
    bare: bytes
    properties: Properties
    ttl_ms: int | None
    due_ms: int | None

    @property
    def message_id(self) -> str | None:
        """The message id as one text; ids of different AMQP types never coincide."""
        identity = self.properties.message_id
        if identity is None or isinstance(identity, str):
            return identity or None
        return f"\0{type(identity).__name__}:{identity!r}"


def parse(payload: bytes) -> SentMessage:
    """A message from the payload of a transfer.

    Raises:
        DecodeError: it is not well-formed.
    """
    parsed = amqp_message.parse(payload)
    due_ms = parsed.annotations.get(SCHEDULED_ENQUEUE_TIME)
    annotations = {
        key: value for key, value in parsed.annotations.items() if key != SCHEDULED_ENQUEUE_TIME
    }
    properties = amqp_message.properties(parsed.bare)
    ttl_ms = parsed.header.ttl_ms
    expiry, creation = properties.absolute_expiry_time, properties.creation_time
    if ttl_ms == MAX_UINT and expiry is not None and creation is not None:
        ttl_ms = max(ttl_ms, expiry - creation)  # 49 days are all that the header can say
    return SentMessage(
        annotations, parsed.bare, properties, ttl_ms, due_ms if isinstance(due_ms, int) else None
    )


def facts(stored: StoredMessage) -> MessageFacts:
    """What filters ask of a message that waited in the store."""
    return MessageFacts(amqp_message.properties(stored.bare), stored.bare)


def parse_transfer(message_format: int, payload: bytes) -> list[SentMessage]:
    """The messages of one transfer: one, or those of a batch.

    Raises:
        DecodeError: one of them is not well-formed.
    """
    if message_format == BATCH_MESSAGE_FORMAT:
        return [parse(inner) for inner in amqp_message.body_data(payload)]
    return [parse(payload)]


def render(stored: StoredMessage, *, locked_until_ms: int | None = None) -> bytes:
    """The payload that a receiver gets."""
    entry = stored.entry
    annotations = {
        **stored.annotations,
        SEQUENCE_NUMBER: entry.sequence_number,
        ENQUEUED_TIME: Timestamp(stored.enqueued_ms),
        MESSAGE_STATE: Int(entry.state),
    }
    if entry.due_ms:
        annotations[SCHEDULED_ENQUEUE_TIME] = Timestamp(entry.due_ms)
    if locked_until_ms is not None:
        annotations[LOCKED_UNTIL] = Timestamp(locked_until_ms)
    if stored.dead_letter_source is not None:
        annotations[DEAD_LETTER_SOURCE] = stored.dead_letter_source
    bare = stored.bare
    if stored.dead_letter_reason is not None or stored.dead_letter_description is not None:
        details = {
            DEAD_LETTER_REASON: stored.dead_letter_reason,
            DEAD_LETTER_DESCRIPTION: stored.dead_letter_description,
        }
        given = {key: value for key, value in details.items() if value is not None}
        bare = amqp_message.with_application_properties(bare, given)
    header = Header(
        durable=True,
        ttl_ms=None if stored.ttl_ms is None else min(stored.ttl_ms, MAX_UINT),
        delivery_count=entry.delivery_count,
    )
    return amqp_message.render(amqp_message.Message(header, annotations, bare))


def token_of(tag: bytes) -> uuid.UUID:
    """The lock token that a delivery tag stands for: in .NET's byte order."""
    return uuid.UUID(bytes_le=tag)
