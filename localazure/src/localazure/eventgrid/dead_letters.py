"""Writes undeliverable events to a blob container.

Source: https://learn.microsoft.com/azure/event-grid/manage-event-delivery#dead-letter-events.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from localazure.eventgrid.configuration import Subscription
from localazure.eventgrid.schemas import Event, Schema, convert
from localazure.eventgrid.store import Delivery
from localazure.storage_client import blobs
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import StorageError

# Event Grid's reasons.
MAX_ATTEMPTS = "MaxDeliveryAttemptsExceeded"
EXPIRED = "TimeToLiveExceeded"
UNDELIVERABLE = "UndeliverableDueToClientError"


def dead_letter(delivery: Delivery, schema: Schema) -> Event:
    """Return the event in the schema of its subscription, with the reason."""
    published = datetime.fromtimestamp(delivery.published_seconds, UTC)
    event = convert(delivery.event, delivery.schema, schema, published=published)
    details = {
        "deadLetterReason": delivery.dead_letter_reason,
        "deliveryAttempts": delivery.attempts,
        "lastDeliveryOutcome": delivery.last_outcome or "",
        "publishTime": _text(delivery.published_seconds),
        "lastDeliveryAttemptTime": _text(delivery.last_attempt_seconds),
    }
    if schema is Schema.CLOUD_EVENTS:  # its attribute names are in lower case
        details = {name.lower(): value for name, value in details.items()}
    return {**event, **details}


def blob_name(subscription: str, delivery: Delivery, hour: datetime) -> str:
    """`SUBSCRIPTION/2026/8/8/5/<guid>.json`. The GUID is derived: the write is idempotent."""
    identity = f"{subscription}/{delivery.event_id}/{delivery.event['id']}"
    folder = f"{subscription.upper()}/{hour.year}/{hour.month}/{hour.day}/{hour.hour}"
    return f"{folder}/{uuid.uuid5(uuid.NAMESPACE_URL, identity)}.json"


class NotWritten(Exception):
    """A dead letter could not be written. Try again later."""


async def write(
    open_service: Callable[[str, str | None], StorageClient],
    subscription: Subscription,
    schema: Schema,
    delivery: Delivery,
) -> None:
    """Write one dead letter. Its subscription must have a container for dead letters.

    Args:
        open_service: opens an account's Blob service for a topic's identity; None is for the key.
        subscription: the subscription whose endpoint did not take the event.
        schema: in which the subscription gets events.
        delivery: the event and its history.

    Raises:
        NotWritten: storage does not accept it now.
    """
    destination = subscription.properties.dead_letters
    assert destination is not None, "there is a container"
    properties = destination.properties
    hour_seconds = delivery.last_attempt_seconds or delivery.published_seconds
    name = blob_name(subscription.name, delivery, datetime.fromtimestamp(hour_seconds, UTC))
    service = open_service(properties.account, subscription.dead_letters_identity)
    request = blobs.upload(
        f"{properties.blob_container_name}/{name}",
        json.dumps([dead_letter(delivery, schema)]).encode(),
        headers={"x-ms-blob-content-type": "application/json"},
    )
    try:
        await service.send(request)
    except StorageError as error:
        raise NotWritten(str(error)) from error


def _text(time_seconds: float | None) -> str | None:
    if time_seconds is None:
        return None
    return datetime.fromtimestamp(time_seconds, UTC).isoformat().replace("+00:00", "Z")
