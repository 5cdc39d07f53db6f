"""kill -9 of the broker under load: no acknowledged message is lost or delivered again."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment

# The SDK leaves the sockets of connections that died to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

START_TIMEOUT_SECONDS = 120.0
ROUNDS = 3
SENDERS = 3


class Load:
    """Senders and a receiver that record acknowledged messages until the broker dies."""

    def __init__(self, environment: Environment) -> None:
        self._connection_string = environment.service_bus_connection_string
        self.sent: set[str] = set()
        self.completed: set[str] = set()
        self.in_doubt: set[str] = set()
        """Completed, but the broker died before it acknowledged that."""

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string, retry_total=0)

    async def send(self, name: str) -> None:
        async with self._client() as client:
            sender = client.get_queue_sender("once")
            for number in range(100_000):
                identity = f"{name}-{number}"
                try:
                    await sender.send_messages(ServiceBusMessage(identity, message_id=identity))
                except ServiceBusError:
                    return
                self.sent.add(identity)

    async def receive(self) -> None:
        async with self._client() as client:
            receiver = client.get_queue_receiver("once")
            while True:
                try:
                    for message in await receiver.receive_messages(20, max_wait_time=1):
                        self.in_doubt.add(str(message))
                        await receiver.complete_message(message)
                        self.in_doubt.discard(str(message))
                        self.completed.add(str(message))
                except (ServiceBusError, ValueError):  # the SDK's handler was shut down
                    return

    async def what_remains(self) -> list[str]:
        remaining: list[str] = []
        async with self._client() as client:
            receiver = client.get_queue_receiver(
                "once", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            )
            while batch := await receiver.receive_messages(500, max_wait_time=3):
                remaining += [str(message) for message in batch]
        return remaining


@pytest.fixture(autouse=True)
def _collect_leaked_sockets() -> Iterator[None]:
    yield
    gc.collect()  # here, not during another test


async def test_kill_9_under_load_loses_no_message_and_delivers_none_again(
    tmp_path: Path, make_environment: Any
) -> None:
    environment: Environment = make_environment(tmp_path)
    environment.save()
    load = Load(environment)
    chance = random.Random(20)
    for round_ in range(ROUNDS):
        with PartProcess("servicebus", environment.state) as broker:
            work = [load.send(f"{round_}-{number}") for number in range(SENDERS)]
            tasks = [asyncio.create_task(item) for item in (*work, load.receive())]
            enough = len(load.completed) + chance.randint(40, 120)
            deadline = time.monotonic() + START_TIMEOUT_SECONDS
            while len(load.completed) < enough:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.005)
            broker.kill()
            await asyncio.gather(*tasks)
    with PartProcess("servicebus", environment.state):
        remaining = await load.what_remains()
    assert len(load.sent) > ROUNDS * 40
    assert len(remaining) == len(set(remaining))
    assert len(load.in_doubt) <= ROUNDS
    assert load.sent <= load.completed | set(remaining) | load.in_doubt
    assert not load.completed & set(remaining)
