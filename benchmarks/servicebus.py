"""The Service Bus part against the disk."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSender,
)

from benchmarks.floors import commits_per_second
from benchmarks.harness import Bench, Contender
from benchmarks.part_process import draw_environment, running

QUEUE = "benchmark"
# The premium tier: the standard one serves 1,000 messages a second, sent or received.
NAMESPACE = {"Name": "benchmark", "Sku": "Premium", "Queues": [{"Name": QUEUE}]}
CONFIG = {"UserConfig": {"Namespaces": [NAMESPACE]}}
BODY = b"x" * 1024
BATCH = 100


def measure(bench: Bench) -> None:
    """1 KB messages through the SDK, in messages a second: `make bench NAME=servicebus`.

    The part is a process; the client is azure-servicebus (synchronous), one connection, in this
    one. What it acknowledges is on disk. The floor is bare SQLite, `synchronous=FULL`, one row a
    commit: a message sent alone costs at least one commit, a round trip two.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Config.json").write_text(json.dumps(CONFIG))
        environment = draw_environment(folder / "state", folder)
        with (
            running(environment, [("servicebus", environment.ports.service_bus)]),
            ServiceBusClient.from_connection_string(
                environment.service_bus_connection_string
            ) as client,
        ):
            _compare(bench, client, folder / "floor")


def _compare(bench: Bench, client: ServiceBusClient, floor: Path) -> None:
    with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:
        traffic = Traffic(sender, receiver, bench.rounds(200, 20), bench.rounds(2000, 200))
        # In this order: what the first two send, the third receives.
        steps: list[tuple[str, Callable[[], int]]] = [
            ("send one by one /s", traffic.send_one_by_one),
            ("send in batches of 100 /s", traffic.send_batches),
            ("receive 100 and complete each /s", traffic.receive_and_complete),
            ("round trip /s", traffic.round_trips),
        ]

        def turn() -> dict[str, float]:
            return {metric: _rate(step) for metric, step in steps}

        def floor_turn() -> dict[str, float]:
            rate = commits_per_second(floor)
            return {metric: rate for metric, _ in steps}

        bench.compare(
            [Contender("localazure", turn), Contender("SQLite floor, commits/s", floor_turn)],
            bench.rounds(5, 1),
        )


@dataclass(frozen=True)
class Traffic:
    """The work of one client; each method returns its number of messages.

    Attributes:
        sender: of the queue.
        receiver: of the same queue, with locks.
        few: messages where each waits for the one before.
        many: messages in batches, a multiple of BATCH.
    """

    sender: ServiceBusSender
    receiver: ServiceBusReceiver
    few: int
    many: int

    def send_one_by_one(self) -> int:
        """Each is acknowledged before the next."""
        for _ in range(self.few):
            self.sender.send_messages(ServiceBusMessage(BODY))
        return self.few

    def send_batches(self) -> int:
        """Each batch is acknowledged before the next."""
        for _ in range(self.many // BATCH):
            self.sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])
        return self.many

    def receive_and_complete(self) -> int:
        """All that was sent; each completion is acknowledged before the next."""
        left = self.few + self.many
        while left:
            left -= _complete(self.receiver, BATCH)
        return self.few + self.many

    def round_trips(self) -> int:
        """Send, receive, complete."""
        for _ in range(self.few):
            self.sender.send_messages(ServiceBusMessage(BODY))
            while not _complete(self.receiver, 1):
                pass
        return self.few


def _complete(receiver: ServiceBusReceiver, count: int) -> int:
    messages = receiver.receive_messages(max_message_count=count, max_wait_time=5)
    for message in messages:
        receiver.complete_message(message)
    return len(messages)


def _rate(step: Callable[[], int]) -> float:
    began = time.monotonic()
    count = step()
    return count / (time.monotonic() - began)
