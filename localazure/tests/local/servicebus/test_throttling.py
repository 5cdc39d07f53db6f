"""The rates of the tiers, as the SDK meets them."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment

BATCH = 600

# The SDK leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextmanager
def namespace(folder: Path, sku: str) -> Generator[Callable[[int], ServiceBusClient]]:
    """A broker of a tier; opens clients of it, with so many retries."""
    document = {
        "Sku": sku,
        "Queues": [{"Name": "q"}],
        "Topics": [{"Name": "t", "Subscriptions": [{"Name": str(n)} for n in range(4)]}],
    }
    (folder / "Config.json").write_text(
        json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", **document}]}})
    )
    environment = Environment.draw(folder / "state", app=folder, config=folder)
    environment.save()

    def connect(retries: int) -> ServiceBusClient:
        connection = environment.service_bus_connection_string
        return ServiceBusClient.from_connection_string(connection, retry_total=retries)

    with PartProcess("servicebus", environment.state):
        yield connect


def messages(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(b"x") for _ in range(count)]


def repeat(operation: Callable[[], object], times: int = 100) -> None:
    for _ in range(times):
        operation()


def test_a_burst_over_the_credits_of_the_standard_tier(tmp_path: Path) -> None:
    with namespace(tmp_path, "Standard") as connect:
        with (
            connect(0) as client,
            client.get_queue_sender("q") as sender,
            client.get_queue_receiver("q") as receiver,
        ):
            with pytest.raises(ServiceBusServerBusyError, match=r"50009.*wait 2 seconds"):
                repeat(lambda: sender.send_messages(messages(BATCH)))
            # Also by request: a peek costs what it returns.
            with pytest.raises(ServiceBusServerBusyError):
                repeat(lambda: receiver.peek_messages(max_message_count=250))
        # The SDK's own retries outlast it.
        with connect(3) as client, client.get_queue_sender("q") as sender:
            repeat(lambda: sender.send_messages(messages(BATCH)), times=4)


def test_each_filter_of_a_topic_costs_a_credit(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, "Standard") as connect,
        connect(0) as client,
        client.get_topic_sender("t") as sender,
    ):
        sender.send_messages(messages(BATCH))  # 600 messages, 2,400 filters: 2 s in debt
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(messages(1))


def test_the_premium_tier_has_no_credits(tmp_path: Path) -> None:
    with (
        namespace(tmp_path, "Premium") as connect,
        connect(0) as client,
        client.get_queue_sender("q") as sender,
    ):
        repeat(lambda: sender.send_messages(messages(BATCH)), times=10)
