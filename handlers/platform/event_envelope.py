"""Parse an event in one of Event Grid's two schemas. Pure.

Sources: https://learn.microsoft.com/azure/event-grid/event-schema and
https://learn.microsoft.com/azure/event-grid/cloud-event-schema
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from azure.functions import EventGridEvent, ServiceBusMessage

from orchestrations.errors import InvalidEvent
from orchestrations.platform.trace_context import HEADER, TraceContext

Delivered = EventGridEvent | ServiceBusMessage


@dataclass(frozen=True, kw_only=True)
class EventEnvelope:
    """The fields that both schemas contain."""

    id: str
    type: str
    source: str
    """The resource of the event; `topic` in the Event Grid schema."""
    subject: str
    time: datetime
    """In UTC."""
    data: object
    traceparent: str | None = None
    """The trace context of a CloudEvent, if its sender traces."""

    def refusal(self, why: str, *, cause: str) -> InvalidEvent:
        """The error to raise for an event that is refused."""
        return InvalidEvent(f"event {self.id}: {why}", cause=cause)


def parse_event(event: Delivered, *, now: datetime) -> EventEnvelope:
    """Parse the event that a trigger received.

    `now`, in UTC, is the time of an event for which the Event Grid trigger has none.

    Raises:
        InvalidEvent: the message does not contain an event.
    """
    if not isinstance(event, EventGridEvent):
        return from_message(event.get_body())
    return EventEnvelope(
        id=event.id,
        type=event.event_type or "",
        source=event.topic or "",
        subject=event.subject or "",
        time=(event.event_time or now).astimezone(UTC),
        data=event.get_json(),
    )


def lower_keys(fields: object) -> Mapping[str, Any]:
    """An object of an event with its keys in lower case: services vary the case of a key."""
    given = cast("Mapping[str, Any]", fields) if isinstance(fields, Mapping) else {}
    return {key.strip().lower(): value for key, value in given.items()}


def delivery_id(event: Delivered) -> str:
    """The id of an event, or of the message that contains it."""
    return event.id if isinstance(event, EventGridEvent) else str(event.message_id)


def from_message(body: bytes) -> EventEnvelope:
    """Parse the event in the body of a Service Bus message, in either schema.

    Raises:
        InvalidEvent: the body is not an event.
    """
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: deeply nested brackets
        raise InvalidEvent(
            f"a message of {len(body)} bytes is not JSON: {error}", cause="not-json"
        ) from None
    if not isinstance(document, Mapping):
        raise InvalidEvent(
            f"a message is a JSON {type(document).__name__}, not one event", cause="not-an-event"
        )
    fields = cast("Mapping[str, Any]", document)
    is_cloud_event = "specversion" in fields
    event_id = _text(fields, "id", "?")
    return EventEnvelope(
        id=event_id,
        type=_text(fields, "type" if is_cloud_event else "eventType", event_id),
        source=_text(fields, "source" if is_cloud_event else "topic", event_id),
        subject=_text(fields, "subject", event_id),
        time=_time(fields, "time" if is_cloud_event else "eventTime", event_id),
        data=fields.get("data"),
        # https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/distributed-tracing.md
        traceparent=fields.get(HEADER) if TraceContext.parse(fields.get(HEADER)) else None,
    )


def _text(fields: Mapping[str, Any], key: str, event_id: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise InvalidEvent(f"event {event_id}: {key} is {value!r}, not text", cause=f"no-{key}")
    return value


def _time(fields: Mapping[str, Any], key: str, event_id: str) -> datetime:
    value = _text(fields, key, event_id)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidEvent(
            f"event {event_id}: {key} is {value!r}, not a time", cause=f"no-{key}"
        ) from None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
