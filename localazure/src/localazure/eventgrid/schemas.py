"""The two event schemas: validation and conversion. Pure: no I/O.

Sources: https://learn.microsoft.com/azure/event-grid/event-schema,
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md and
https://learn.microsoft.com/azure/event-grid/cloud-event-schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

Event = dict[str, Any]


class Schema(StrEnum):
    """Schemas by ARM's names."""

    EVENT_GRID = "EventGridSchema"
    CLOUD_EVENTS = "CloudEventSchemaV1_0"


class InvalidEvent(ValueError):
    """An event violates its schema. The message names index and field."""


_EVENT_GRID_FIELDS = frozenset(
    {
        "id",
        "topic",
        "subject",
        "eventType",
        "eventTime",
        "data",
        "dataVersion",
        "metadataVersion",
    }
)
_CLOUD_ATTRIBUTE = re.compile(r"[a-z0-9]+|data_base64")
_CLOUD_STRINGS = ("subject", "time", "datacontenttype", "dataschema")
METADATA_VERSION = "1"


def check_event_grid(event: object, index: int) -> Event:
    """An event that follows the Event Grid schema.

    Raises:
        InvalidEvent: a field is missing, unknown or malformed.
    """
    checked = _object(event, index)
    for name in ("id", "subject", "eventType", "eventTime"):
        _required_string(checked, name, index)
    for name in ("topic", "dataVersion", "metadataVersion"):
        _optional_string(checked, name, index)
    _time(checked["eventTime"], "eventTime", index)
    if checked.get("metadataVersion") not in {None, "", METADATA_VERSION}:
        raise InvalidEvent(
            f"event {index}: metadataVersion must be {METADATA_VERSION!r} or absent, "
            f"found {checked['metadataVersion']!r}"
        )
    for name in checked.keys() - _EVENT_GRID_FIELDS:
        raise InvalidEvent(f"event {index}: {name!r} is not a field of the Event Grid schema")
    return checked


def check_cloud_event(event: object, index: int) -> Event:
    """An event that follows CloudEvents 1.0, JSON format.

    Raises:
        InvalidEvent: an attribute is missing or malformed.
    """
    checked = _object(event, index)
    for name in ("specversion", "id", "source", "type"):
        _required_string(checked, name, index)
    if checked["specversion"] != "1.0":
        raise InvalidEvent(
            f"event {index}: specversion must be '1.0', found {checked['specversion']!r}"
        )
    for name in _CLOUD_STRINGS:
        _optional_string(checked, name, index)
    if checked.get("time") is not None:
        _time(checked["time"], "time", index)
    if "data" in checked and "data_base64" in checked:
        raise InvalidEvent(f"event {index}: data and data_base64 exclude each other")
    for name in checked:
        if not _CLOUD_ATTRIBUTE.fullmatch(name):
            raise InvalidEvent(
                f"event {index}: {name!r} is not an attribute name (lower-case letters and digits)"
            )
    return checked


CHECKS: Mapping[Schema, Callable[[object, int], Event]] = {
    Schema.EVENT_GRID: check_event_grid,
    Schema.CLOUD_EVENTS: check_cloud_event,
}


def convert(event: Event, schema: Schema, wanted: Schema, *, published: datetime) -> Event:
    """The event in the wanted schema.

    Args:
        event: valid in `schema`.
        schema: what it was published in.
        wanted: the schema of the subscription.
        published: replaces a time that the publisher did not set.
    """
    if schema is wanted:
        return event
    if wanted is Schema.CLOUD_EVENTS:
        return to_cloud_event(event)
    return to_event_grid(event, published)


def to_cloud_event(event: Event) -> Event:
    """An event of the Event Grid schema as a CloudEvent."""
    converted: Event = {
        "specversion": "1.0",
        "id": event["id"],
        "source": event["topic"],
        "type": event["eventType"],
        "subject": event["subject"],
        "time": event["eventTime"],
    }
    if event.get("dataVersion"):
        converted["dataschema"] = f"#{event['dataVersion']}"
    if "data" in event:
        converted["data"] = event["data"]
    return converted


def to_event_grid(event: Event, published: datetime) -> Event:
    """A CloudEvent in the Event Grid schema, which has no room for extension attributes."""
    return {
        "id": event["id"],
        "topic": event["source"],
        "subject": event.get("subject") or "",
        "eventType": event["type"],
        "eventTime": event.get("time") or published.isoformat().replace("+00:00", "Z"),
        "data": event.get("data", event.get("data_base64")),
        "dataVersion": (event.get("dataschema") or "").removeprefix("#"),
        "metadataVersion": METADATA_VERSION,
    }


def _object(event: object, index: int) -> Event:
    if not isinstance(event, dict):
        raise InvalidEvent(f"event {index}: expected an object, found {type(event).__name__}")
    return event


def _required_string(event: Event, name: str, index: int) -> None:
    if not isinstance(event.get(name), str) or (not event[name] and name != "subject"):
        raise InvalidEvent(
            f"event {index}: {name} must be a non-empty string, found {event.get(name)!r}"
        )


def _optional_string(event: Event, name: str, index: int) -> None:
    if event.get(name) is not None and not isinstance(event[name], str):
        raise InvalidEvent(f"event {index}: {name} must be a string, found {event[name]!r}")


# Seven decimal places, as .NET writes them, are one more than fromisoformat of 3.11 keeps; it
# cuts them off.
def _time(value: str, name: str, index: int) -> None:
    try:
        datetime.fromisoformat(value)
    except ValueError as error:
        raise InvalidEvent(f"event {index}: {name} is no ISO 8601 time: {value!r}") from error
