"""Delivery to a storage queue, one message an event.

Source: https://learn.microsoft.com/azure/event-grid/handler-storage-queues.
"""

from __future__ import annotations

import json

import aiohttp

from localazure.eventgrid.configuration import StorageQueueEntity
from localazure.eventgrid.retry import Outcome, Verdict, judge
from localazure.eventgrid.schemas import Event
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, STORAGE_KEY, Environment
from localazure.storage_client.queue import StorageQueue, encode
from localazure.storage_client.rest import Endpoint, StorageError, StorageRest
from localazure.storage_client.signature import sign_queue_request


class StorageQueueEndpoint:
    """Puts events into a queue of the local storage, which is made where there is none."""

    def __init__(
        self, session: aiohttp.ClientSession, environment: Environment, entity: StorageQueueEntity
    ) -> None:
        endpoint = Endpoint(
            url=f"http://{LOOPBACK}:{environment.ports.queue}/{STORAGE_ACCOUNT}",
            account=STORAGE_ACCOUNT,
            key=STORAGE_KEY,
        )
        self._queue = StorageQueue(StorageRest(session, endpoint, sign_queue_request), entity.name)
        self._time_to_live_s = entity.time_to_live_s

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:  # noqa: ARG002 - a message tells no attempts
        """Put each event in as base64 of its JSON, as Azure does."""
        try:
            for event in events:
                text = encode(json.dumps(event), is_base64=True)
                await self._queue.put(text, time_to_live_s=self._time_to_live_s)
        except StorageError as error:
            return judge(error.status, webhook=False)
        except aiohttp.ClientConnectionError:
            return Outcome(Verdict.ABSENT, "SocketError")
        except TimeoutError:
            return Outcome(Verdict.RETRY, "TimedOut")
        return Outcome(Verdict.DELIVERED, "Delivered")
