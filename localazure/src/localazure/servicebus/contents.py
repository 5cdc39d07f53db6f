"""Parses the messages of senders and renders messages for receivers.

The broker's own properties of a message are annotations `x-opt-*`, see
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localazure import limits
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp.errors import NotAllowedError
from localazure.servicebus.amqp.performatives import MAX_UINT, Header, Properties
from localazure.servicebus.amqp.types import Int, Symbol, Timestamp
from localazure.servicebus.filters import MessageFacts
from localazure.servicebus.queues import Lock
from localazure.servicebus.store import SentMessage, StoredMessage

# Message format of a batch: each data section is a message. The broker accepts all or none.
BATCH_MESSAGE_FORMAT = 0x80013700

SCHEDULED_ENQUEUE_TIME = Symbol("x-opt-scheduled-enqueue-time")
SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
MESSAGE_STATE = Symbol("x-opt-message-state")
DEAD_LETTER_SOURCE = Symbol("x-opt-deadletter-source")
LOCK_TOKEN = Symbol("x-opt-lock-token")


def parse(payload: bytes) -> SentMessage:
    """Parse a message from the payload of a transfer.

    Raises:
        DecodeError: the message is not well-formed.
        NotAllowedError: the message id or the application properties are too long.
    """
    parsed = amqp_message.parse(payload)
    amqp_message.application_properties(parsed.bare)  # validate: they are decoded later
    due_ms = parsed.annotations.get(SCHEDULED_ENQUEUE_TIME)
    properties = amqp_message.properties(parsed.bare)
    _check_limits(properties, parsed.bare)
    ttl_ms = parsed.header.ttl_ms
    expiry, creation = properties.absolute_expiry_time, properties.creation_time
    if ttl_ms == MAX_UINT and expiry is not None and creation is not None:
        ttl_ms = max(ttl_ms, expiry - creation)  # the ttl of the header is limited to 49 days
    return SentMessage(
        bare=parsed.bare,
        properties=properties,
        ttl_ms=ttl_ms,
        due_ms=due_ms if isinstance(due_ms, int) else None,
        priority=parsed.header.priority,
        delivery_annotations=parsed.delivery_annotations,
        annotations=parsed.annotations,
    )


def _check_limits(properties: Properties, bare: bytes) -> None:
    identity, longest = properties.message_id, limits.SERVICE_BUS_MESSAGE_ID.value
    if isinstance(identity, str) and len(identity) > longest:
        raise NotAllowedError(
            f"the message id has {len(identity)} characters; it may have at most {longest}"
        )
    for code, _, start, end in amqp_message.sections(bare):
        largest = limits.SERVICE_BUS_PROPERTIES.value
        if code == amqp_message.APPLICATION_PROPERTIES and end - start > largest:
            raise NotAllowedError(
                f"the application properties have {end - start} bytes; they may have {largest}"
            )


def ensure_message_id(message: SentMessage) -> SentMessage:
    """Return the message, with a new message id if its sender set none."""
    if message.message_id is not None:
        return message
    properties = replace(message.properties, message_id=uuid.uuid4().hex)
    bare = amqp_message.replace_properties(message.bare, properties)
    return replace(message, bare=bare, properties=properties)


def facts(stored: StoredMessage) -> MessageFacts:
    """Return the fields that filters read from a stored message."""
    return MessageFacts(amqp_message.properties(stored.bare), stored.bare)


def parse_transfer(message_format: int, payload: bytes) -> list[SentMessage]:
    """Parse the messages of a transfer: a single message or a batch.

    Raises:
        DecodeError: a message is not well-formed.
    """
    if message_format == BATCH_MESSAGE_FORMAT:
        return [parse(inner) for inner in amqp_message.body_data(payload)]
    return [parse(payload)]


def render(stored: StoredMessage, lock: Lock | None = None) -> bytes:
    """Render the payload for a receiver.

    Args:
        stored: the message.
        lock: the receiver's lock; None for peek and for receive-and-delete.
    """
    entry = stored.entry
    delivery_annotations = dict(stored.delivery_annotations)
    annotations = {
        **stored.annotations,
        SEQUENCE_NUMBER: entry.sequence_number,
        ENQUEUED_TIME: Timestamp(stored.enqueued_ms),
        MESSAGE_STATE: Int(entry.state),
    }
    if lock is not None:
        annotations[LOCKED_UNTIL] = Timestamp(lock.until_ms)
        delivery_annotations[LOCK_TOKEN] = lock.token
    if stored.dead_letter_source is not None:
        annotations[DEAD_LETTER_SOURCE] = stored.dead_letter_source
    header = Header(
        durable=True,
        priority=stored.priority,
        ttl_ms=None if stored.ttl_ms is None else min(stored.ttl_ms, MAX_UINT),
        delivery_count=entry.delivery_count,
    )
    return amqp_message.render(
        amqp_message.Message(header, delivery_annotations, annotations, stored.bare)
    )


def modified_properties(settlement: Mapping[Any, Any]) -> dict[str, Any]:
    """Application properties that a settlement sets, without null values."""
    return {str(name): value for name, value in settlement.items() if value is not None}
