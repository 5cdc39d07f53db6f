"""Delivery to a storage queue, one message for each event.

Source: https://learn.microsoft.com/azure/event-grid/handler-storage-queues.
"""

from __future__ import annotations

import json

from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError
from azure.storage.queue.aio import QueueServiceClient

from localazure.eventgrid.destinations import StorageQueueDestination
from localazure.eventgrid.retry import Outcome, Verdict, judge
from localazure.eventgrid.schemas import Event
from localazure.runtime.environment import Environment
from localazure.storage_client.queue import CLIENT_OPTIONS, StorageQueue, encode


class StorageQueueEndpoint:
    """Puts events into a queue of the local storage. Creates a missing queue."""

    def __init__(self, environment: Environment, destination: StorageQueueDestination) -> None:
        self._service = QueueServiceClient.from_connection_string(
            environment.storage_connection_string(destination.account), **CLIENT_OPTIONS
        )
        self._queue = StorageQueue(self._service, destination.queue_name)
        self._time_to_live_seconds = destination.queue_message_time_to_live_in_seconds

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:  # noqa: ARG002 - the messages do not contain it
        """Send each event as base64 of its JSON, as Azure does."""
        try:
            for event in events:
                text = encode(json.dumps(event), is_base64=True)
                await self._queue.put(text, time_to_live_seconds=self._time_to_live_seconds)
        except HttpResponseError as error:
            return judge(error.status_code or 0, webhook=False)
        except ServiceRequestError:
            return Outcome(Verdict.NOT_LISTENING, "SocketError")
        except AzureError:
            return Outcome(Verdict.RETRY, "TimedOut")
        return Outcome(Verdict.DELIVERED, "Delivered")

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()
