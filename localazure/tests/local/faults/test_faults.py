"""Faults with the SDKs and running parts; each test sets a plan."""

from __future__ import annotations

import contextlib
import gc
import json
import uuid
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
import requests
from azure.core.credentials import AzureKeyCredential
from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridPublisherClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusServerBusyError,
)
from azure.storage.blob import ContainerClient

from harness.part_process import running_parts
from localazure.faults.current_plan import remove_plan, set_plan
from localazure.faults.plan import Plan
from localazure.runtime.environment import Environment

SERVICE_BUS = """{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [
    {"Name": "work"}, {"Name": "events"}], "Topics": []}]}}"""
EVENT_GRID = """{"topics": [{"name": "things", "inputSchema": "CloudEventSchemaV1_0"}],
  "retryScheduleSeconds": [0.1],
  "eventSubscriptions": [{"name": "sub", "topic": "things", "properties": {
    "eventDeliverySchema": "CloudEventSchemaV1_0",
    "destination": {"endpointType": "ServiceBusQueue",
                    "properties": {"resourceId": "/namespaces/n/queues/events"}}}}]}"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "storage.json").write_text('{"containers": ["landing"]}')
    (folder / "Config.json").write_text(SERVICE_BUS)
    (folder / "event-grid.json").write_text(EVENT_GRID)
    environment = Environment.draw(folder / "state", app=folder, config=folder)
    environment.save()
    with running_parts(environment.state, "storage", "servicebus", "eventgrid"):
        yield environment


Force = Callable[..., None]


@pytest.fixture
def force(running: Environment) -> Iterator[Force]:
    def put(*rules: dict[str, Any]) -> None:
        # Seeds make plans differ in size, so that parts notice a change within one clock tick.
        seed = uuid.uuid4().int
        set_plan(running.state, Plan.model_validate({"seed": seed, "rules": rules}))

    yield put
    remove_plan(running.state)


@pytest.fixture
def landing(running: Environment) -> Iterator[ContainerClient]:
    connection = running.storage_connection_string()
    with ContainerClient.from_connection_string(connection, "landing", retry_total=0) as client:
        yield client


@pytest.fixture
def bus(running: Environment) -> Iterator[ServiceBusClient]:
    connection = running.service_bus_connection_string
    with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        yield client
    gc.collect()  # so that warnings about unclosed SDK sockets appear in this test


@contextlib.contextmanager
def receiving(running: Environment, queue: str) -> Generator[Callable[[int], list[str]]]:
    """Yield a function that receives at least `count` messages of a queue."""
    connection = running.service_bus_connection_string
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
    ):

        def take(count: int) -> list[str]:
            found: list[str] = []
            while len(found) < count:
                found += [str(message) for message in receiver.receive_messages(5, 20)]
            return found

        yield take


WRITES = "blob/containers/blobs/write"


def test_storage_is_busy_and_sends_retry_after(force: Force, landing: ContainerClient) -> None:
    force({"part": "storage", "operation": WRITES, "fault": "error", "retryAfterSeconds": 3})
    with pytest.raises(HttpResponseError, match="ServerBusy") as refused:
        landing.upload_blob("busy", b"x")
    response: Any = refused.value.response
    assert response.headers["Retry-After"] == "3"
    assert list(landing.list_blob_names(name_starts_with="busy")) == []  # reads still work


@pytest.mark.parametrize(("fault", "is_written"), [("reset", False), ("lostAnswer", True)])
def test_a_connection_ends_before_or_after_the_write(
    force: Force, landing: ContainerClient, fault: str, is_written: object
) -> None:
    force({"part": "storage", "operation": WRITES, "fault": fault})
    with pytest.raises((ServiceRequestError, ServiceResponseError)):
        landing.upload_blob(fault, b"x")
    assert bool(list(landing.list_blob_names(name_starts_with=fault))) == is_written


def test_an_answer_ends_in_the_middle(
    force: Force, running: Environment, landing: ContainerClient
) -> None:
    landing.upload_blob("whole", b"x" * 1000)
    force({"part": "storage", "operation": "blob/containers/blobs/read", "fault": "halfAnswer"})
    with pytest.raises((ServiceResponseError, HttpResponseError)):
        landing.download_blob("whole").readall()
    remove_plan(running.state)
    assert len(landing.download_blob("whole").readall()) == 1000


def test_service_bus_is_busy(force: Force, bus: ServiceBusClient) -> None:
    force({"part": "servicebus", "operation": "send/work", "fault": "error"})
    with bus.get_queue_sender("work") as sender, pytest.raises(ServiceBusServerBusyError):
        sender.send_messages(ServiceBusMessage("never"))
    with bus.get_queue_receiver("work") as receiver:
        assert receiver.peek_messages() == []


# The SDK does not close the socket of an aborted connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_sdk_sends_twice_after_a_lost_acknowledgement(
    force: Force, running: Environment
) -> None:
    once = {"fault": "lostAnswer", "firstTimes": 1}
    force({"part": "servicebus", "operation": "send/work", **once})
    connection = running.service_bus_connection_string
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender("work") as sender,
    ):
        sender.send_messages(ServiceBusMessage("doubled"))
    with receiving(running, "work") as take:
        assert take(2) == ["doubled", "doubled"]
    gc.collect()  # here, not during another test


def publish(running: Environment) -> str:
    """Publish an event; return its data."""
    key = AzureKeyCredential(running.event_grid_keys("things")[0])
    data = uuid.uuid4().hex
    with EventGridPublisherClient(running.topic_endpoint("things"), key) as client:
        client.send(CloudEvent(source="test", type="test", data=data), retry_total=0)
    return data


@pytest.mark.parametrize(
    ("fault", "count"), [("duplicate", 2), ("loss", 0), ("lostAnswer", 2), ("error", 1)]
)
def test_an_event_is_delivered_twice_or_never(
    force: Force, running: Environment, fault: str, count: int
) -> None:
    # The fault affects the first attempt, not the retry.
    force({"part": "eventgrid", "operation": "deliver/sub", "fault": fault, "firstTimes": 1})
    with receiving(running, "events") as take:
        first = publish(running)
        found = take(count)
        second = publish(running)
        found += take(1)
    # The first event was not delivered once more.
    assert [json.loads(event)["data"] for event in found] == [first] * count + [second]


def test_latency_delays_one_request_and_not_the_next(force: Force, running: Environment) -> None:
    url = f"http://127.0.0.1:{running.ports.blob}/devstoreaccount1?comp=list"
    force({"part": "storage", "operation": "blob/*", "fault": "latency", "seconds": 3})
    with pytest.raises(requests.ReadTimeout):
        requests.get(url, timeout=0.3)
    remove_plan(running.state)
    assert requests.get(url, timeout=20).status_code == 403  # no signature


def test_a_wrong_clock_of_storage(force: Force, landing: ContainerClient) -> None:
    force({"part": "storage", "fault": "clockSkew", "seconds": 3600})
    with pytest.raises(HttpResponseError, match="date header too old"):
        landing.upload_blob(uuid.uuid4().hex, b"x")
    force({"part": "storage", "fault": "clockSkew", "seconds": 600})
    landing.upload_blob(uuid.uuid4().hex, b"x")  # within the 15 minutes that Azure allows


def test_a_wrong_clock_of_event_grid_dates_its_answers(force: Force, running: Environment) -> None:
    force({"part": "eventgrid", "fault": "clockSkew", "seconds": -86400})
    url = f"{running.topic_endpoint('things')}?api-version=2018-01-01"
    headers = {
        "aeg-sas-key": running.event_grid_keys("things")[0],
        "Content-Type": "application/cloudevents+json",
    }
    event = '{"specversion": "1.0", "id": "1", "source": "s", "type": "t"}'
    answer = requests.post(url, event, headers=headers, timeout=20)
    assert answer.status_code == 200
    told = parsedate_to_datetime(answer.headers["Date"])
    assert timedelta(hours=23) < datetime.now(UTC) - told < timedelta(hours=25)


def test_a_wrong_clock_of_service_bus_ends_tokens(force: Force, bus: ServiceBusClient) -> None:
    force({"part": "servicebus", "fault": "clockSkew", "seconds": 7200})  # the SDK's last 1 h
    with pytest.raises(ServiceBusAuthenticationError), bus.get_queue_sender("work") as sender:
        sender.send_messages(ServiceBusMessage("never"))
