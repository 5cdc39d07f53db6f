"""Publishes CloudEvents to a custom topic of Event Grid, with bounded timeouts.

By default the SDK waits 300 s for a response, and then as long as Retry-After requests: longer than
a function may run. The client's constructor ignores its options (4.22), so they are passed to each
`send`.
https://learn.microsoft.com/azure/event-grid/post-to-custom-topic
"""

from __future__ import annotations

import logging
from typing import Any

from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridPublisherClient

TIMEOUT_SECONDS = 15.0

# `send` also passes its options to the event's model, which logs a warning for each.
logging.getLogger("azure.eventgrid._legacy._generated._serialization").setLevel(logging.ERROR)


class EventGridTopic(EventGridPublisherClient):
    """A custom topic. Connects at the first event. Thread-safe."""

    def publish(self, event: CloudEvent[Any]) -> None:
        """Send one event; return when Event Grid has accepted it.

        Raises:
            azure.core.exceptions.HttpResponseError: the event was refused, or Event Grid failed.
            `ResourceNotFoundError` has no status.
            azure.core.exceptions.AzureError: there was no response.
        """
        self.send(
            event,
            retry_total=0,  # the queue `notifications` retries
            connection_timeout=TIMEOUT_SECONDS,
            read_timeout=TIMEOUT_SECONDS,
            permit_redirects=False,  # the key must not be sent to another host
        )
