"""The Service Bus part against the disk."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver

from benchmarks.child_process import draw_environment, running
from benchmarks.floors import commits_per_second
from benchmarks.harness import Bench

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
    few, many = bench.rounds(200, 20), bench.rounds(2000, 200)  # `many` is a multiple of BATCH
    with client.get_queue_sender(QUEUE) as sender, client.get_queue_receiver(QUEUE) as receiver:

        def send_one_by_one() -> int:
            for _ in range(few):
                sender.send_messages(ServiceBusMessage(BODY))
            return few

        def send_batches() -> int:
            for _ in range(many // BATCH):
                sender.send_messages([ServiceBusMessage(BODY) for _ in range(BATCH)])
            return many

        def receive_and_complete() -> int:
            """All that was sent; each completion is acknowledged before the next."""
            left = few + many
            while left:
                left -= _complete(receiver, BATCH)
            return few + many

        def round_trips() -> int:
            for _ in range(few):
                sender.send_messages(ServiceBusMessage(BODY))
                while not _complete(receiver, 1):
                    pass
            return few

        # Metric to what returns its number of messages. In this order: what the first two send, the
        # third receives.
        steps = {
            "send one by one /s": send_one_by_one,
            "send in batches of 100 /s": send_batches,
            "receive 100 and complete each /s": receive_and_complete,
            "round trip /s": round_trips,
        }
        contenders = {
            "localazure": lambda: {metric: _rate(step) for metric, step in steps.items()},
            "SQLite floor, commits/s": lambda: dict.fromkeys(steps, commits_per_second(floor)),
        }
        bench.compare(contenders, bench.rounds(5, 1))


def _complete(receiver: ServiceBusReceiver, count: int) -> int:
    messages = receiver.receive_messages(max_message_count=count, max_wait_time=5)
    for message in messages:
        receiver.complete_message(message)
    return len(messages)


def _rate(step: Callable[[], int]) -> float:
    began = time.monotonic()
    count = step()
    return count / (time.monotonic() - began)
