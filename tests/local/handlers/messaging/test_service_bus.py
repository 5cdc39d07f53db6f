from __future__ import annotations

import gc
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus.exceptions import MessageSizeExceededError

from handlers.configuration.clients import Clients
from handlers.configuration.settings import Settings
from handlers.messaging.service_bus import Message
from harness.part_process import PartProcess
from tests.local.handlers.world_with_messaging import Namespace, World, make_environment


def a_message(message_id: str, body: str = "{}", **more: object) -> Message:
    return Message(message_id=message_id, body=body, **more)  # type: ignore[arg-type]  # fields by name


def test_many_threads_send_through_one_sender(world: World, namespace: Namespace) -> None:
    queues = world.clients.message_queues
    sent = [f"thread-{number}" for number in range(40)]

    def send(name: str) -> None:
        queues.send("retries", a_message(name))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(send, sent))
    received = namespace.take("retries")
    assert sorted(str(message.message_id) for message in received) == sorted(sent)
    assert world.clients.message_queues is queues


def test_the_same_id_is_taken_once_also_from_a_batch(namespace: Namespace, world: World) -> None:
    queues = world.clients.message_queues
    queues.send("retries", a_message("once"), a_message("twice"), a_message("twice"))
    queues.send("retries", a_message("once"))
    received = namespace.take("retries")
    assert sorted(str(message.message_id) for message in received) == ["once", "twice"]


def test_subject_properties_and_body_come_through(namespace: Namespace, world: World) -> None:
    message = a_message(
        "whole", json.dumps({"a": "ü"}), subject="kind", properties={"run": "r", "attempt": 2}
    )
    world.clients.message_queues.send("retries", message)
    (received,) = namespace.take("retries")
    assert json.loads(str(received)) == {"a": "ü"}
    assert received.subject == "kind"
    assert received.content_type == "application/json"
    assert received.application_properties == {b"run": b"r", b"attempt": 2}


def test_a_scheduled_message_is_not_seen_before_its_time(
    namespace: Namespace, world: World
) -> None:
    at = datetime.now(UTC) + timedelta(seconds=0.5)
    world.clients.message_queues.send("retries", a_message("later", enqueue_at=at))
    (waiting,) = namespace.peek("retries")
    assert waiting.scheduled_enqueue_time_utc is not None
    assert abs(waiting.scheduled_enqueue_time_utc - at) < timedelta(milliseconds=2)
    (received,) = namespace.take("retries")
    assert received.message_id == "later"
    assert datetime.now(UTC) >= at


def test_what_does_not_fit_into_one_transfer_goes_in_several(
    namespace: Namespace, world: World
) -> None:
    bulk = [a_message(f"bulk-{number}", "x" * 100_000) for number in range(5)]
    world.clients.message_queues.send("retries", *bulk)
    assert len(namespace.take("retries")) == len(bulk)


def test_a_message_beyond_the_limit_is_refused_and_the_sender_goes_on(
    namespace: Namespace, world: World
) -> None:
    queues = world.clients.message_queues
    with pytest.raises(MessageSizeExceededError):
        queues.send("retries", a_message("huge", "x" * 300_000))
    queues.send("retries", a_message("after-huge"))
    assert [str(each.message_id) for each in namespace.take("retries")] == ["after-huge"]


# The SDK drops the socket of the lost connection without closing it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sending_goes_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    environment = make_environment(tmp_path, "http://127.0.0.1:1")
    clients = Clients(Settings({"ServiceBus": environment.service_bus_connection_string}))
    with PartProcess("servicebus", tmp_path) as broker, clients.service_bus:
        queues = clients.message_queues
        queues.send("retries", a_message("before-kill"))
        broker.end(signal.SIGKILL)
        broker.start()
        queues.send("retries", a_message("after-kill"))
        received = Namespace(clients).take("retries")
    assert sorted(str(each.message_id) for each in received) == ["after-kill", "before-kill"]
    del queues, clients
    gc.collect()  # so that it is in this test that the socket is found
