"""The same broker with the unmodified SDK (aio): concurrency, restarts, dead clients."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from localazure.servicebus.server import serve

WAIT_SECONDS = 10.0


@pytest.fixture
def running(tmp_path: Path, start_broker: Any) -> Iterator[Any]:
    broker = start_broker(tmp_path)
    yield broker
    broker.close()


class Handlers:
    """Senders and receivers of one client, closed side by side: each takes the SDK a second."""

    def __init__(self, client: ServiceBusClient) -> None:
        self._client = client
        self._opened: list[Any] = []

    def sender(self, queue: str) -> ServiceBusSender:
        self._opened.append(self._client.get_queue_sender(queue))
        return self._opened[-1]

    def receiver(self, queue: str, **options: Any) -> ServiceBusReceiver:
        self._opened.append(self._client.get_queue_receiver(queue, **options))
        return self._opened[-1]

    async def close(self) -> None:
        await asyncio.gather(*(handler.close() for handler in self._opened))


@pytest.fixture
async def handlers(running: Any) -> AsyncIterator[Handlers]:
    async with ServiceBusClient.from_connection_string(
        running.environment.service_bus_connection_string, retry_backoff_factor=0.1
    ) as client:
        opened = Handlers(client)
        yield opened
        await opened.close()


async def receive_exactly(
    receiver: ServiceBusReceiver, count: int
) -> list[ServiceBusReceivedMessage]:
    """The SDK may return fewer than there are."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        batch = await receiver.receive_messages(count - len(found), max_wait_time=WAIT_SECONDS)
        assert batch
        found += batch
    return found


async def complete_all(receiver: ServiceBusReceiver, count: int) -> list[str]:
    messages = await receive_exactly(receiver, count)
    for message in messages:
        await receiver.complete_message(message)
    return [str(message) for message in messages]


async def test_many_connections_share_the_work_and_lose_nothing(running: Any) -> None:
    clients = 8
    messages_each = 40

    async def produce(number: int) -> None:
        async with (
            ServiceBusClient.from_connection_string(
                running.environment.service_bus_connection_string
            ) as own,
            own.get_queue_sender("plain") as sender,
        ):
            for count in range(messages_each):
                await sender.send_messages(ServiceBusMessage(f"{number}-{count}"))

    found: list[str] = []

    async def consume() -> None:
        async with (
            ServiceBusClient.from_connection_string(
                running.environment.service_bus_connection_string
            ) as own,
            own.get_queue_receiver("plain") as receiver,
        ):
            while len(found) < clients * messages_each:
                for message in await receiver.receive_messages(10, max_wait_time=0.5):
                    await receiver.complete_message(message)
                    found.append(str(message))

    await asyncio.gather(*(produce(number) for number in range(clients)), consume(), consume())
    expected = {f"{number}-{count}" for number in range(clients) for count in range(messages_each)}
    assert len(found) == len(expected)
    assert set(found) == expected


async def test_clients_outlive_a_restart_of_the_broker(running: Any, handlers: Handlers) -> None:
    sender = handlers.sender("plain")
    receiver = handlers.receiver("plain")
    await sender.send_messages([ServiceBusMessage("kept"), ServiceBusMessage("deferred")])
    await sender.schedule_messages(
        ServiceBusMessage("scheduled"), datetime.now(UTC) + timedelta(seconds=1)
    )
    kept, deferred = await receive_exactly(receiver, 2)
    await receiver.defer_message(deferred)
    await receiver.abandon_message(kept)
    (locked,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
    assert locked.sequence_number == kept.sequence_number
    await asyncio.to_thread(running.stop)
    await asyncio.to_thread(running.start)
    # Locks do not survive a restart, delivery counts do.
    (again,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
    assert (str(again), again.delivery_count) == ("kept", 1)
    await receiver.complete_message(again)
    (aside,) = await receiver.receive_deferred_messages(deferred.sequence_number or 0)
    await receiver.complete_message(aside)
    assert await complete_all(receiver, 1) == ["scheduled"]
    await sender.send_messages(ServiceBusMessage("after"))
    (after,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
    # Sequence numbers continue although no message is left.
    assert (after.sequence_number or 0) > (again.sequence_number or 0) + 2
    await receiver.complete_message(after)


async def test_a_dead_clients_messages_are_available_after_their_lock(
    running: Any, handlers: Handlers
) -> None:
    sender = handlers.sender("hasty")
    await sender.send_messages(ServiceBusMessage("orphan"))
    dying = ServiceBusClient.from_connection_string(
        running.environment.service_bus_connection_string
    )
    receiver = dying.get_queue_receiver("hasty")
    (orphan,) = await receiver.receive_messages(1, max_wait_time=WAIT_SECONDS)
    await dying.close()
    heir = handlers.receiver("hasty")
    (inherited,) = await heir.receive_messages(1, max_wait_time=WAIT_SECONDS)
    assert inherited.sequence_number == orphan.sequence_number
    assert inherited.delivery_count == 1
    await heir.complete_message(inherited)


async def test_waiting_receivers_get_messages_as_they_come(handlers: Handlers) -> None:
    sender = handlers.sender("plain")
    waiting = handlers.receiver("plain")
    taking = handlers.receiver("plain", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    locked = asyncio.create_task(waiting.receive_messages(1, max_wait_time=WAIT_SECONDS))
    taken = asyncio.create_task(taking.receive_messages(1, max_wait_time=WAIT_SECONDS))
    await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    (one,), (other,) = await locked, await taken
    await waiting.complete_message(one)
    assert {str(one), str(other)} == {"1", "2"}
    assert await waiting.peek_messages(1, sequence_number=1) == []


async def test_a_taken_port_is_an_error_that_leaves_nothing_running(
    running: Any, make_environment: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    environment = dataclasses.replace(
        make_environment(tmp_path_factory.mktemp("second")), ports=running.environment.ports
    )
    with pytest.raises(OSError, match="in use"):
        async with serve(environment):
            pass
    assert asyncio.all_tasks() == {asyncio.current_task()}
