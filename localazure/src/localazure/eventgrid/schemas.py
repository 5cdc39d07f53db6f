"""The two event schemas: validation and conversion. Pure: no I/O.

Sources: https://learn.microsoft.com/azure/event-grid/event-schema,
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md and
https://learn.microsoft.com/azure/event-grid/cloud-event-schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, StringConstraints, model_validator

from localazure.configuration_file import (
    ConfigurationModel,
    OpenConfigurationModel,
    error_at,
    validate,
)
from localazure.errors import ConfigurationError

Event = dict[str, Any]


class Schema(StrEnum):
    """Schemas by ARM's names."""

    EVENT_GRID = "EventGridSchema"
    CLOUD_EVENTS = "CloudEventSchemaV1_0"


class InvalidEvent(ValueError):
    """An event violates its schema. The message gives index and field."""


METADATA_VERSION = "1"

_CLOUD_ATTRIBUTE = re.compile(r"[a-z0-9]+|data_base64")


def _iso_8601(value: str) -> str:
    # Seven decimal places, as .NET writes them, are one more than fromisoformat of 3.11 keeps; it
    # cuts them off.
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be an ISO 8601 time") from None
    return value


_Text = Annotated[str, StringConstraints(min_length=1)]
_Time = Annotated[str, AfterValidator(_iso_8601)]


class _EventGridEvent(ConfigurationModel):
    id: _Text
    topic: str | None = None
    subject: str
    event_type: _Text
    event_time: _Time
    data: Any = None
    data_version: str | None = None
    metadata_version: Literal["", "1"] | None = None


class _CloudEvent(OpenConfigurationModel):
    """CloudEvents 1.0, JSON format; other attributes are extensions."""

    model_config = ConfigDict(alias_generator=None)

    specversion: Literal["1.0"]
    id: _Text
    source: _Text
    type: _Text
    subject: str | None = None
    time: _Time | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    data: Any = None
    data_base64: Any = None

    @model_validator(mode="after")
    def _attributes(self) -> _CloudEvent:
        if {"data", "data_base64"} <= self.model_fields_set:
            raise error_at(("data_base64",), "data and data_base64 exclude each other")
        for name in self.model_extra or {}:
            if not _CLOUD_ATTRIBUTE.fullmatch(name):
                raise error_at((name,), "an attribute name has lower-case letters and digits")
        return self


_MODELS: Mapping[Schema, type[ConfigurationModel]] = {
    Schema.EVENT_GRID: _EventGridEvent,
    Schema.CLOUD_EVENTS: _CloudEvent,
}


def check(event: object, schema: Schema, index: int) -> Event:
    """An event that follows a schema.

    Raises:
        InvalidEvent: a field is missing, unknown or malformed.
    """
    try:
        validate(event, _MODELS[schema], origin=f"event {index}")
    except ConfigurationError as error:
        raise InvalidEvent(str(error)) from None
    assert isinstance(event, dict)  # it is validated
    return event


def convert(event: Event, schema: Schema, wanted: Schema, *, published: datetime) -> Event:
    """Convert an event to the wanted schema.

    Args:
        event: an event that is valid in `schema`.
        schema: the schema of the published event.
        wanted: the schema of the subscription.
        published: the time of an event without one.
    """
    if schema is wanted:
        return event
    if wanted is Schema.CLOUD_EVENTS:
        return to_cloud_event(event)
    return to_event_grid(event, published)


def to_cloud_event(event: Event) -> Event:
    """Convert an event of the Event Grid schema to a CloudEvent."""
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
    """Convert a CloudEvent to the Event Grid schema, which cannot hold extension attributes."""
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
