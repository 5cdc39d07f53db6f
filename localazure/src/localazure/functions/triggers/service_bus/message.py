"""Converts Service Bus messages to a body and metadata, as the real extension does.

Source: https://learn.microsoft.com/azure/azure-functions/functions-bindings-service-bus-trigger#message-metadata
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, cast

from azure.functions.meta import Datum
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from localazure.functions.app.expressions import json_properties
from localazure.functions.worker.invocation import TriggerData

_SCALAR_TYPES: Final = {str: "string", int: "int"}


def one(message: ServiceBusReceivedMessage) -> TriggerData:
    """The data for a function of cardinality one."""
    metadata = {
        name: Datum(value, _SCALAR_TYPES[type(value)])
        if type(value) in _SCALAR_TYPES
        else Datum(json.dumps(value), "json")
        for name, value in _metadata(message).items()
        if value is not None
    }

    def binding_data() -> dict[str, Any]:
        return {**_metadata(message), **json_properties(body(message).decode(errors="replace"))}

    return TriggerData(Datum(body(message), "bytes"), metadata, binding_data=binding_data)


def many(messages: Sequence[ServiceBusReceivedMessage]) -> TriggerData:
    """The data for a function of cardinality many: an array of each field."""
    rows = [_metadata(message) for message in messages]
    metadata = {
        f"{name}Array": Datum(json.dumps([row[name] for row in rows]), "json") for name in rows[0]
    }
    # The SDK reads `value.bytes`, as in the worker's protobuf message.
    bodies = SimpleNamespace(bytes=[body(message) for message in messages])
    return TriggerData(Datum(bodies, "collection_bytes"), metadata)


def body(message: ServiceBusReceivedMessage) -> bytes:
    """The body: the joined data sections, or the text of any other body."""
    if message.body_type is AmqpMessageBodyType.DATA:
        return b"".join(cast("Iterable[bytes]", message.body))
    return str(message).encode()


def _metadata(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    properties = {
        _text(name): _plain(value) for name, value in (message.application_properties or {}).items()
    }
    return {
        "MessageId": _text(message.message_id or ""),
        "ContentType": message.content_type,
        "CorrelationId": message.correlation_id,
        "Subject": message.subject,
        "Label": message.subject,
        "To": message.to,
        "ReplyTo": message.reply_to,
        "ReplyToSessionId": message.reply_to_session_id,
        "SessionId": message.session_id,
        "PartitionKey": message.partition_key,
        "DeadLetterReason": message.dead_letter_reason,
        "DeadLetterErrorDescription": message.dead_letter_error_description,
        "DeadLetterSource": message.dead_letter_source,
        # AMQP and the Python SDK count earlier deliveries; the extension also counts this one.
        "DeliveryCount": (message.delivery_count or 0) + 1,
        "EnqueuedSequenceNumber": message.enqueued_sequence_number,
        "SequenceNumber": message.sequence_number,
        "State": int(message.state),
        "LockToken": str(message.lock_token) if message.lock_token else None,
        "EnqueuedTimeUtc": _iso(message.enqueued_time_utc),
        "ExpiresAtUtc": _iso(message.expires_at_utc),
        "LockedUntil": _iso(message.locked_until_utc),
        "ScheduledEnqueueTimeUtc": _iso(message.scheduled_enqueue_time_utc),
        "ApplicationProperties": properties,
        "UserProperties": properties,
    }


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _plain(value: object) -> object:
    """Convert a property's value to a JSON value."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return value.isoformat() if isinstance(value, datetime) else _text(value)


def manual_run_data(text: str) -> TriggerData:
    """The data for a manual run with a text."""
    none = Datum("{}", "json")
    metadata = {
        "MessageId": Datum("by-hand", "string"),
        "ApplicationProperties": none,
        "UserProperties": none,
    }
    return TriggerData(Datum(text.encode(), "bytes"), metadata)
