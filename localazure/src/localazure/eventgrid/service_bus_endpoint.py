"""Delivery to a Service Bus queue or topic: one message per event, many per transfer.

Source: https://learn.microsoft.com/azure/event-grid/handler-service-bus.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from localazure.eventgrid.destinations import ServiceBusDestination, ServiceBusTopicDestination
from localazure.eventgrid.retry import ATTEMPT_TIMEOUT_SECONDS, Outcome, Verdict
from localazure.eventgrid.schemas import METADATA_VERSION, Event

logger = logging.getLogger(__name__)


class ServiceBusEndpoint:
    """A sender to one entity. It is opened on first use, and again after an error."""

    def __init__(
        self,
        open_client: Callable[[], ServiceBusClient],
        subscription: str,
        destination: ServiceBusDestination,
    ) -> None:
        self._open_client = open_client
        self._subscription = subscription
        self._destination = destination
        self._lock = asyncio.Lock()
        self._client: ServiceBusClient | None = None
        self._sender: ServiceBusSender | None = None

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:
        """Send events in the subscription's schema, after `attempts` earlier attempts."""
        properties = {
            "aeg-event-type": "Notification",
            "aeg-subscription-name": self._subscription.upper(),
            "aeg-delivery-count": str(attempts),
            "aeg-metadata-version": METADATA_VERSION,
        }
        messages = [
            ServiceBusMessage(
                json.dumps(event),
                content_type="application/json",
                message_id=event["id"],
                application_properties={**properties},
            )
            for event in events
        ]
        # A sender of the SDK serves one call at a time.
        async with self._lock:
            try:
                sender = self._sender or self._open()
                await asyncio.wait_for(sender.send_messages(messages), ATTEMPT_TIMEOUT_SECONDS)
            except MessageSizeExceededError:
                return Outcome(Verdict.FINAL, "PayloadTooLarge")
            except (ServiceBusAuthenticationError, ServiceBusAuthorizationError) as error:
                await self.close()
                logger.warning("%s: %s", self._subscription, error)
                # If the entity does not exist, the service refuses the token.
                is_missing = "Status code: 404" in str(error.inner_exception)
                return Outcome(Verdict.RETRY, "NotFound" if is_missing else "Unauthorized")
            except (ServiceBusConnectionError, OSError):
                await self.close()
                return Outcome(Verdict.NOT_LISTENING, "SocketError")
            except (ServiceBusError, TimeoutError):
                await self.close()
                return Outcome(Verdict.RETRY, "Busy")
            return Outcome(Verdict.DELIVERED, "Delivered")

    def _open(self) -> ServiceBusSender:
        client = self._client = self._open_client()
        is_topic = isinstance(self._destination, ServiceBusTopicDestination)
        open_sender = client.get_topic_sender if is_topic else client.get_queue_sender
        self._sender = open_sender(self._destination.name)
        return self._sender

    async def close(self) -> None:
        """Close the connection, if any."""
        client, sender = self._client, self._sender
        self._client = self._sender = None
        # Close both: the client has only weak references to its senders.
        for each in (sender, client):
            if each is not None:
                with contextlib.suppress(ServiceBusError, OSError):
                    await each.close()
