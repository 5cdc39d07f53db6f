"""The rates and sizes of the tiers, observed with the SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusServerBusyError

from harness.part_process import PartProcess
from localazure.runtime.environment import Environment

BATCH = 600
RULES = 1000

# The SDK leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@contextmanager
def namespace(
    folder: Path, sku: str, *queues: dict[str, Any]
) -> Generator[Callable[[int], ServiceBusClient]]:
    """Run a broker of a tier with extra queues. Yields a function: number of retries → client."""
    properties = {"FilterType": "Correlation", "CorrelationFilter": {"Label": "none"}}
    rules = [{"Name": f"r{number}", "Properties": properties} for number in range(RULES)]
    document = {
        "Sku": sku,
        "Queues": [{"Name": "q"}, *queues],
        "Topics": [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": rules}]}],
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


def repeat(operation: Callable[[], object], times: int) -> None:
    for _ in range(times):
        operation()


def test_a_burst_over_the_credits_of_the_standard_tier(tmp_path: Path) -> None:
    with namespace(tmp_path, "Standard") as connect:
        # The SDK's retries last longer than the debt of a second or two.
        with (
            connect(3) as client,
            client.get_queue_sender("q") as sender,
            client.get_topic_sender("t") as publisher,
        ):
            repeat(lambda: sender.send_messages(messages(BATCH)), times=4)
            # Every message meets every filter: minutes in debt, however slow the machine is.
            publisher.send_messages(messages(BATCH // 2))
        with (
            connect(0) as client,
            client.get_queue_sender("q") as sender,
            client.get_queue_receiver("q") as receiver,
        ):
            with pytest.raises(ServiceBusServerBusyError, match=r"50009.*wait 2 seconds"):
                sender.send_messages(messages(1))
            with pytest.raises(ServiceBusServerBusyError):
                receiver.peek_messages()  # a management request


def test_the_sizes_of_the_premium_tier(tmp_path: Path) -> None:
    large = {"Name": "large", "Properties": {"MaxMessageSizeInKilobytes": 2048}}
    with (
        namespace(tmp_path, "Premium", large) as connect,
        connect(0) as client,
        client.get_queue_sender("q") as sender,
        client.get_queue_sender("large") as large_sender,
        client.get_queue_receiver("large", receive_mode="receiveanddelete") as receiver,
    ):
        sender.send_messages(ServiceBusMessage(b"x" * 1_000_000))
        with pytest.raises(MessageSizeExceededError, match="1048576"):
            sender.send_messages(ServiceBusMessage(b"x" * 1_100_000))
        assert sender.create_message_batch().max_size_in_bytes == 1024 * 1024
        large_sender.send_messages(ServiceBusMessage(b"x" * 2_000_000))
        (received,) = receiver.receive_messages(max_wait_time=5)
        assert len(b"".join(received.body)) == 2_000_000
        with pytest.raises(MessageSizeExceededError, match="2097152"):
            large_sender.send_messages(ServiceBusMessage(b"x" * 2_200_000))
        # The larger limit of the queue does not apply to batches.
        assert large_sender.create_message_batch().max_size_in_bytes == 1024 * 1024
        # The premium tier has no credits.
        repeat(lambda: sender.send_messages(messages(BATCH)), times=10)
