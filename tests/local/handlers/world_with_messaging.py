"""The app's clients with the shared storage, Service Bus, Event Grid, and an HTTP receiver."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

from handlers.operate.reconciliation import reconciliation
from handlers.platform.clients import Clients
from handlers.platform.settings import Settings
from harness.part_process import running_parts
from localazure.runtime.environment import Environment
from tests.local.handlers.zone_on_storage import MESSAGING

ROOT = Path(__file__).parents[3]
SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
WAIT_SECONDS = 5.0
ALERT_SECONDS = 30.0
OF_QUEUES = ("collect", "give_back", "sweep")
"""The steps of reconciliation on queues."""


@dataclass(frozen=True)
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HttpReceiver:
    """A loopback HTTP server that records requests; `answers` has the responses for paths."""

    port: int = 0
    posted: list[Posted] = field(default_factory=list[Posted])
    answers: dict[str, tuple[int, dict[str, str]]] = field(
        default_factory=dict[str, tuple[int, dict[str, str]]]
    )
    arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def to(self, path: str, content: str = "") -> list[Posted]:
        return [each for each in self.posted if each.path == path and content.encode() in each.body]

    def wait_for(self, path: str, content: str) -> Posted:
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.to(path, content), timeout=30)
        return self.to(path, content)[0]


@contextmanager
def http_receiver(tls: ssl.SSLContext | None = None) -> Generator[HttpReceiver]:
    receiver = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_OPTIONS(self) -> None:
            self._answer(200, {"WebHook-Allowed-Origin": "*"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with receiver.arrived:
                receiver.posted.append(Posted(self.path, dict(self.headers), body))
                receiver.arrived.notify_all()
            self._answer(*receiver.answers.get(self.path, (204, {})))

        def _answer(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        receiver.port = server.server_port
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Namespace:
    """The Service Bus namespace of `infra/local/Config.json`, for reading its messages."""

    clients: Clients
    kept: dict[tuple[str, bool], ServiceBusReceiver] = field(
        default_factory=dict[tuple[str, bool], ServiceBusReceiver]
    )

    def take(self, entity: str) -> list[ServiceBusReceivedMessage]:
        """Receive all messages of an entity; waits for the first one.

        The limit of 1 leaves no link credit behind, which would lock messages of later receivers.
        """
        return _take(self._receiver(entity), 1) + self.take_present(entity)

    def take_present(self, entity: str, *, dead: bool = False) -> list[ServiceBusReceivedMessage]:
        """Receive the messages that are on an entity now, or in its dead-letter queue."""
        self.clients.background.wait_until_idle()
        found = self.peek(entity, dead=dead)
        active = [each for each in found if each.state == ServiceBusMessageState.ACTIVE]
        return _take(self._receiver(entity, dead=dead), len(active)) if active else []

    def take_alert(self, kind: str, about: str) -> ServiceBusReceivedMessage:
        """Wait for the alert of a kind that contains `about`; other tests' alerts are skipped."""
        deadline = time.monotonic() + ALERT_SECONDS
        found: list[ServiceBusReceivedMessage] = []
        while not found:
            assert time.monotonic() < deadline, f"no {kind} alert about {about}"
            taken = self.take("ops-alerts")
            found = [each for each in taken if each.subject == kind and about in str(each)]
        (alert,) = found
        return alert

    def peek(self, entity: str, *, dead: bool = False) -> list[ServiceBusReceivedMessage]:
        receiver = self._receiver(entity, dead=dead)
        found = receiver.peek_messages(max_message_count=100)
        # One reply has no more bytes than one message may have.
        while found and (
            more := receiver.peek_messages(
                max_message_count=100, sequence_number=(found[-1].sequence_number or 0) + 1
            )
        ):
            found += more
        return found

    def _receiver(self, entity: str, *, dead: bool = False) -> ServiceBusReceiver:
        if (entity, dead) not in self.kept:
            options: dict[str, Any] = {"sub_queue": "deadletter"} if dead else {}
            service_bus = self.clients.service_bus
            self.kept[entity, dead] = (
                service_bus.get_subscription_receiver(entity, "on-call", **options)
                if entity == "ops-alerts"
                else service_bus.get_queue_receiver(entity, **options)
            )
        return self.kept[entity, dead]


def _take(receiver: ServiceBusReceiver, limit: int) -> list[ServiceBusReceivedMessage]:
    taken = receiver.receive_messages(max_message_count=limit, max_wait_time=WAIT_SECONDS)
    for message in taken:
        receiver.complete_message(message)
    return taken


@dataclass(frozen=True)
class World:
    clients: Clients
    namespace: Namespace
    receiver: HttpReceiver

    def lend_to(self, clients: Clients) -> None:
        """Make clients with other settings use the open connections."""
        lent = ("blobs", "message_queues", "service_bus")
        vars(clients).update({name: getattr(self.clients, name) for name in lent})


@pytest.fixture(scope="package")
def world(storage_part: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    state = tmp_path_factory.mktemp("messaging")
    with http_receiver() as receiver:
        environment = make_environment(state, receiver.url)
        data_storage = storage_part.storage_connection_string(MESSAGING)
        settings = {**_settings(environment, receiver), "DataStorage": data_storage}
        clients = Clients(Settings(settings))
        with ExitStack() as stack:
            stack.enter_context(running_parts(state, "servicebus", "eventgrid"))
            for client in (clients.service_bus, clients.blobs, clients.event_grid):
                stack.enter_context(client)
            yield World(clients, Namespace(clients), receiver)


@pytest.fixture
def namespace(world: World) -> Namespace:
    return world.namespace


@pytest.fixture
def quiet_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the steps on queues: they open six receivers, and have their own tests."""

    def nothing(*_: object) -> int:
        return 0

    for name in OF_QUEUES:
        monkeypatch.setattr(reconciliation, name, nothing)


def make_environment(state: Path, receiver_url: str) -> Environment:
    subscription = {
        "name": "told",
        "topic": "landfall",
        "properties": {
            "destination": {
                "endpointType": "WebHook",
                "properties": {"endpointUrl": f"{receiver_url}/events"},
            },
            "eventDeliverySchema": "CloudEventSchemaV1_0",
        },
    }
    (state / "event-grid.json").write_text(
        json.dumps(
            {
                "topics": [{"name": "landfall", "inputSchema": "CloudEventSchemaV1_0"}],
                "eventSubscriptions": [subscription],
            }
        )
    )
    environment = replace(
        Environment.draw(state, app=ROOT, config=state),
        service_bus_config=ROOT / "infra/local/Config.json",
    )
    environment.save()
    return environment


def _settings(environment: Environment, receiver: HttpReceiver) -> dict[str, str]:
    return {
        "ServiceBus": environment.service_bus_connection_string,
        "EventGridTopic__endpoint": environment.topic_endpoint("landfall"),
        "EventGridTopic__key": environment.event_grid_keys("landfall")[0],
        "CALLER_URL": f"{receiver.url}/caller",
        "DOWN_URL": f"{receiver.url}/down",
        "MODEL_WATCH_URL": f"{receiver.url}/model-watch",
        "MODEL_WATCH_SECRET": SECRET,
        "GONE_URL": f"{receiver.url}/gone",
        "AZUREML_SUBSCRIPTION_ID": "s",
        "AZUREML_RESOURCE_GROUP": "g",
        "AZUREML_WORKSPACE_NAME": "w",
    }
