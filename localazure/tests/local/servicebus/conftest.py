"""A running broker for the real SDK, in this process on a thread of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from harness.service_bus_handlers import Handlers
from localazure.runtime.environment import Environment
from localazure.servicebus.server import serve


def queue(name: str, **properties: Any) -> dict[str, Any]:
    return {"Name": name, "Properties": properties}


def key(name: str, *rights: str) -> dict[str, Any]:
    return {"Name": name, "Properties": {"Rights": rights}}


URGENT = {"Label": "alert", "Properties": {"level": "high"}}
OF_URGENT = {"FilterType": "Correlation", "CorrelationFilter": URGENT}
NEWS = [{"Name": "all"}, {"Name": "urgent", "Rules": [{"Name": "u", "Properties": OF_URGENT}]}]
# Short times, so that tests can wait for locks and messages to expire.
NAMESPACE = {
    "Name": "test",
    "AuthorizationRules": [key("send-only", "Send"), key("listen-only", "Listen")],
    "Queues": [
        queue("plain", LockDuration="PT30S"),
        queue(
            "hasty", LockDuration="PT1S", MaxDeliveryCount=2, DeadLetteringOnMessageExpiration=True
        ),
        queue("once", RequiresDuplicateDetection=True, DuplicateDetectionHistoryTimeWindow="PT10M"),
        queue("forwarding", ForwardDeadLetteredMessagesTo="collected", MaxDeliveryCount=1),
        {"Name": "collected", "AuthorizationRules": [key("send-only", "Send", "Listen")]},
    ],
    "Topics": [{"Name": "news", "Subscriptions": NEWS}],
}


def draw_up(folder: Path) -> Environment:
    (folder / "Config.json").write_text(json.dumps({"UserConfig": {"Namespaces": [NAMESPACE]}}))
    return Environment.draw(folder / "state", app=folder, config=folder)


class Running:
    """A broker that can be stopped and started again on the same state and port."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")
        self._thread.start()
        self._context: Any = None
        self.start()

    def start(self) -> None:
        self._context = serve(self.environment)
        self._await(self._context.__aenter__())

    def stop(self) -> None:
        self._await(self._context.__aexit__(None, None, None))

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return draw_up(tmp_path_factory.mktemp("servicebus"))


@pytest.fixture
def make_environment() -> Callable[[Path], Environment]:
    """Draws up an environment with its files in a folder of the test."""
    return draw_up


@pytest.fixture(scope="session")
def running(environment: Environment) -> Iterator[Running]:
    broker = Running(environment)
    yield broker
    broker.close()


@pytest.fixture
def start_broker() -> Callable[[Path], Running]:
    """Starts a broker with its state in a folder of the test; to be closed by the test."""
    return lambda folder: Running(draw_up(folder))


@pytest.fixture(scope="session")
def client(running: Running) -> Iterator[ServiceBusClient]:
    """One client for all: each close of the SDK may take a second."""
    with ServiceBusClient.from_connection_string(
        running.environment.service_bus_connection_string, retry_total=1
    ) as shared:
        yield shared


@pytest.fixture(scope="module")
def handlers(client: ServiceBusClient) -> Iterator[Handlers]:
    opened = Handlers(client)
    yield opened
    opened.close()
