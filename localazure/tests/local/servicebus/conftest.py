"""A running broker for the real SDK, in this process on a separate thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from harness.service_bus_handlers import Handlers
from localazure.runtime.environment import Environment
from localazure.servicebus.service import serve


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
        queue("circle", ForwardTo="back"),
        queue("back", ForwardTo="circle"),
        queue("forwarding", ForwardDeadLetteredMessagesTo="collected", MaxDeliveryCount=1),
        {"Name": "collected", "AuthorizationRules": [key("send-only", "Send", "Listen")]},
    ],
    "Topics": [{"Name": "news", "Subscriptions": NEWS}],
}


def draw_up(folder: Path) -> Environment:
    (folder / "Config.json").write_text(json.dumps({"UserConfig": {"Namespaces": [NAMESPACE]}}))
    return Environment.draw(folder / "state", app=folder, config=folder)


@pytest.fixture
def make_environment() -> Callable[[Path], Environment]:
    """Creates an environment with its files in a folder of the test."""
    return draw_up


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """The environment of a broker on a separate thread, since the SDK blocks the tests' thread."""
    environment = draw_up(tmp_path_factory.mktemp("servicebus"))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="broker")
    thread.start()

    def wait_for(work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(30)

    broker: Any = serve(environment)
    wait_for(broker.__aenter__())
    yield environment
    wait_for(broker.__aexit__(None, None, None))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="session")
def client(environment: Environment) -> Iterator[ServiceBusClient]:
    """A client that all tests share: each close of the SDK may take a second."""
    with ServiceBusClient.from_connection_string(
        environment.service_bus_connection_string, retry_total=1
    ) as shared:
        yield shared


@pytest.fixture(scope="module")
def handlers(client: ServiceBusClient) -> Iterator[Handlers]:
    opened = Handlers(client)
    yield opened
    opened.close()
