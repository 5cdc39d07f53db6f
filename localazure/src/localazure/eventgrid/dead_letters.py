"""Writes undeliverable events to a blob container.

Source: https://learn.microsoft.com/azure/event-grid/manage-event-delivery#dead-letter-events.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime

from azure.storage.blob import ContentSettings
from azure.storage.blob.aio import BlobServiceClient

from localazure.eventgrid.schemas import Event, Schema, convert
from localazure.eventgrid.store import Delivery

# Reasons of Event Grid.
MAX_ATTEMPTS = "MaxDeliveryAttemptsExceeded"
EXPIRED = "TimeToLiveExceeded"
UNDELIVERABLE = "UndeliverableDueToClientError"


def dead_letter(delivery: Delivery, schema: Schema) -> Event:
    """The event in the schema of its subscription, with the reason."""
    published = datetime.fromtimestamp(delivery.published_seconds, UTC)
    event = convert(delivery.event, delivery.schema, schema, published=published)
    details = {
        "deadLetterReason": delivery.dead_letter_reason,
        "deliveryAttempts": delivery.attempts,
        "lastDeliveryOutcome": delivery.last_outcome,
        "publishTime": _text(delivery.published_seconds),
        "lastDeliveryAttemptTime": _text(delivery.last_attempt_seconds),
    }
    if schema is Schema.CLOUD_EVENTS:  # whose attribute names are in lower case
        details = {name.lower(): value for name, value in details.items()}
    return {**event, **details}


def blob_name(subscription: str, delivery: Delivery, hour: datetime) -> str:
    """`SUBSCRIPTION/2026/8/8/5/<guid>.json`. It is derived, so a second write has no effect."""
    identity = f"{subscription}/{delivery.event_id}/{delivery.event['id']}"
    folder = f"{subscription.upper()}/{hour.year}/{hour.month}/{hour.day}/{hour.hour}"
    return f"{folder}/{uuid.uuid5(uuid.NAMESPACE_URL, identity)}.json"


class DeadLetterStorage:
    """The storage accounts, as far as dead letters need them.

    Args:
        connection_string: gives that of an account.
    """

    def __init__(self, connection_string: Callable[[str], str]) -> None:
        self._connection_string = connection_string
        self._services: dict[str, BlobServiceClient] = {}

    async def write(
        self, account: str, container: str, subscription: str, delivery: Delivery, schema: Schema
    ) -> None:
        """Write one dead letter.

        Raises:
            azure.core.exceptions.AzureError: it could not be written; try again later.
        """
        service = self._services.get(account)
        if service is None:
            # The worker tries again by itself.
            service = self._services[account] = BlobServiceClient.from_connection_string(
                self._connection_string(account), retry_total=0
            )
        hour_seconds = delivery.last_attempt_seconds or delivery.published_seconds
        name = blob_name(subscription, delivery, datetime.fromtimestamp(hour_seconds, UTC))
        await service.get_blob_client(container, name).upload_blob(
            json.dumps([dead_letter(delivery, schema)]),
            overwrite=True,
            content_settings=ContentSettings(content_type="application/json"),
        )

    async def close(self) -> None:
        """Close the connections."""
        for service in self._services.values():
            await service.close()


def _text(time_seconds: float | None) -> str | None:
    if time_seconds is None:
        return None
    return datetime.fromtimestamp(time_seconds, UTC).isoformat().replace("+00:00", "Z")
