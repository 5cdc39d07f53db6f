"""Clients that load every kind of entity until the broker dies, and keep what it acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from servicebus_crash.journal import Journal

_ONCE = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1H"}
_LABELLED = {"FilterType": "Correlation", "CorrelationFilter": {"Label": "odd"}}
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "crash",
                # The clients are to wait for the broker's disk, not for credits.
                "Sku": "Premium",
                "Queues": [
                    {"Name": "once", "Properties": _ONCE},
                    {"Name": "later"},
                    {"Name": "doomed"},
                ],
                "Topics": [
                    {
                        "Name": "news",
                        "Subscriptions": [
                            {"Name": "all"},
                            {"Name": "odd", "Rules": [{"Name": "odd", "Properties": _LABELLED}]},
                        ],
                    }
                ],
            }
        ]
    }
}
CONCURRENT_SENDERS = 2
SENT_AGAIN = 0.3
"""The share of sends that repeat an id, which duplicate detection drops."""
CANCELLED = 0.3
LONGEST_DELAY_SECONDS = 0.4
# Errors of the SDK when its connection ends; ValueError and AttributeError are its own defects
# with handlers that were shut down while in use.
_ENDS = (AzureError, OSError, ValueError, AttributeError)


class Load:
    """The clients of all rounds, and their journals.

    Args:
        connection: connection string of the namespace.
        chance: draws what is repeated and cancelled.
    """

    def __init__(self, connection: str, chance: random.Random) -> None:
        self._connection = connection
        self._chance = chance
        places = ("once", "later", "doomed", "doomed/$DeadLetterQueue", "news/all", "news/odd")
        self.journals = {place: Journal(place) for place in places}
        self.duplicates = 0
        """Sends that repeated the id of an acknowledged one."""
        self.cancelled = 0

    @property
    def faults(self) -> list[str]:
        """All faults, of all places."""
        return [fault for journal in self.journals.values() for fault in journal.faults]

    @property
    def removed(self) -> int:
        """Acknowledged settlements and cancellations."""
        return sum(len(journal.removed) for journal in self.journals.values())

    async def until_it_dies(self, round_: int) -> None:
        """Load the broker until every client has noticed that it is gone."""
        async with self._client() as client:
            senders = [
                work
                for number in range(CONCURRENT_SENDERS)
                for work in (
                    self._send_once(client, f"{round_}-{number}"),
                    self._schedule(client, f"{round_}-{number}"),
                    self._publish(client, f"{round_}-{number}"),
                    self._send_doomed(client, f"{round_}-{number}"),
                )
            ]
            receivers = [self._complete(client, place) for place in self.journals]
            receivers[2] = self._dead_letter(client)
            await asyncio.gather(*(_until_an_end(work) for work in (*senders, *receivers)))

    async def receive_the_rest(self) -> None:
        """Empty every place, and compare."""
        await asyncio.sleep(2 * LONGEST_DELAY_SECONDS)  # what is scheduled becomes due
        async with self._client() as client:
            rest = await asyncio.gather(*(_rest(client, place) for place in self.journals))
        for journal, remaining in zip(self.journals.values(), rest, strict=True):
            journal.end(remaining)

    # --- senders ----------------------------------------------------------------------------------

    async def _send_once(self, client: ServiceBusClient, name: str) -> None:
        journal = self.journals["once"]
        async with client.get_queue_sender("once") as sender:
            doubtful = sorted(journal.in_doubt)
            for number in range(1_000_000):
                known = doubtful or (
                    list(journal.sent)[-50:] if self._chance.random() < SENT_AGAIN else []
                )
                identity = self._chance.choice(known) if known else f"{name}-{number}"
                self.duplicates += identity in journal.sent
                doubtful = [each for each in doubtful if each != identity]
                await self._send(sender, identity, journal)

    async def _publish(self, client: ServiceBusClient, name: str) -> None:
        everything, odd = self.journals["news/all"], self.journals["news/odd"]
        async with client.get_topic_sender("news") as sender:
            for number in range(1_000_000):
                if number % 2:
                    await self._send(sender, f"{name}-{number}", everything, odd, subject="odd")
                else:
                    await self._send(sender, f"{name}-{number}", everything)

    async def _send_doomed(self, client: ServiceBusClient, name: str) -> None:
        async with client.get_queue_sender("doomed") as sender:
            for number in range(1_000_000):
                await self._send(sender, f"{name}-{number}", self.journals["doomed"])

    async def _send(
        self,
        sender: ServiceBusSender,
        identity: str,
        *journals: Journal,
        subject: str | None = None,
    ) -> None:
        for journal in journals:
            journal.begun.add(identity)
        message = ServiceBusMessage(identity, message_id=identity, subject=subject)
        await sender.send_messages(message)
        for journal in journals:
            journal.sent.add(identity)

    async def _schedule(self, client: ServiceBusClient, name: str) -> None:
        journal = self.journals["later"]
        async with client.get_queue_sender("later") as sender:
            for number in range(1_000_000):
                identity = f"{name}-{number}"
                delay = timedelta(seconds=self._chance.uniform(0, LONGEST_DELAY_SECONDS))
                journal.begun.add(identity)
                (sequence_number,) = await sender.schedule_messages(
                    ServiceBusMessage(identity, message_id=identity), datetime.now(UTC) + delay
                )
                journal.sent.add(identity)
                if self._chance.random() < CANCELLED:
                    await self._cancel(sender, sequence_number, identity)

    async def _cancel(self, sender: ServiceBusSender, number: int, identity: str) -> None:
        journal = self.journals["later"]
        journal.removing.add(identity)
        try:
            await sender.cancel_scheduled_messages(number)
        except _ENDS as error:
            if "scheduled" not in str(error):
                raise
            journal.removing.discard(identity)  # it is due already
        else:
            journal.removed.add(identity)
            self.cancelled += 1

    # --- receivers --------------------------------------------------------------------------------

    async def _complete(self, client: ServiceBusClient, place: str) -> None:
        async with _receiver(client, place) as receiver:
            await self._settle(receiver, self.journals[place], receiver.complete_message)

    async def _dead_letter(self, client: ServiceBusClient) -> None:
        dead = self.journals["doomed/$DeadLetterQueue"]
        async with _receiver(client, "doomed") as receiver:

            async def dead_letter(message: ServiceBusReceivedMessage) -> None:
                dead.begun.add(str(message))
                await receiver.dead_letter_message(message, reason="doomed")
                dead.sent.add(str(message))

            await self._settle(receiver, self.journals["doomed"], dead_letter)

    async def _settle(
        self,
        receiver: ServiceBusReceiver,
        journal: Journal,
        settle: Callable[[ServiceBusReceivedMessage], Coroutine[Any, Any, None]],
    ) -> None:
        while True:
            for message in await receiver.receive_messages(20, max_wait_time=0.5):
                identity = str(message)
                journal.receive(identity)
                journal.removing.add(identity)
                await settle(message)
                journal.removed.add(identity)

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection, retry_total=0)


async def _until_an_end(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except _ENDS:
        return


async def _rest(client: ServiceBusClient, place: str) -> list[str]:
    rest: list[str] = []
    async with _receiver(client, place) as receiver:
        # On a busy machine, the next messages may take longer than a wait.
        while (
            batch := await receiver.receive_messages(500, max_wait_time=1)
        ) or await receiver.peek_messages():
            rest += [str(message) for message in batch]
            await asyncio.gather(*(receiver.complete_message(message) for message in batch))
    return rest


@asynccontextmanager
async def _receiver(client: ServiceBusClient, place: str) -> AsyncGenerator[ServiceBusReceiver]:
    entity, _, part = place.partition("/")
    if part and not part.startswith("$"):
        receiver = client.get_subscription_receiver(entity, part)
    else:
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if part else None
        receiver = client.get_queue_receiver(entity, sub_queue=sub_queue)
    async with receiver:
        yield receiver
