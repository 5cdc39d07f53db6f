"""Publish CloudEvents to a custom topic of Event Grid, with a bounded patience.

By default the SDK waits 300 s for an answer, and then for as long as a Retry-After asks for:
longer than a function may run. What is given to the constructor of its client is dropped (4.22);
the options of a single `send` arrive.
https://learn.microsoft.com/azure/event-grid/post-to-custom-topic
"""

from __future__ import annotations

import logging
from typing import Any

from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridPublisherClient

TIMEOUT_SECONDS = 15.0

# `send` hands its options to the event's model, too, which warns of each and leaves it out.
logging.getLogger("azure.eventgrid._legacy._generated._serialization").setLevel(logging.ERROR)


class EventGridTopic(EventGridPublisherClient):
    """One custom topic. Nothing connects before the first event; may be used from any thread."""

    def publish(self, event: CloudEvent[Any]) -> None:
        """Send one event; returns when Event Grid has taken it.

        Raises:
            azure.core.exceptions.HttpResponseError: it was refused, or Event Grid is in trouble.
                `ResourceNotFoundError` has no status.
            azure.core.exceptions.AzureError: no answer came.
        """
        self.send(
            event,
            retry_total=0,  # the queue `notifications` retries
            connection_timeout=TIMEOUT_SECONDS,
            read_timeout=TIMEOUT_SECONDS,
            permit_redirects=False,  # the key is for this host alone
        )
