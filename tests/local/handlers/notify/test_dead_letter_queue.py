from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusReceivedMessage, ServiceBusReceiver

from handlers.notify.dead_letter_queue import (
    Rejected,
    collect,
    dead_letter,
    dead_letters,
    give_back,
    reject,
    reject_message,
    sweep,
)
from handlers.platform.service_bus import REJECTED_RUNS, RETRIES, ROLLOUTS, Message
from handlers.training.retries import retry_message
from orchestrations.contracts.base import Failure
from orchestrations.contracts.runs import DeadLetter, RunRequest
from tests.local.handlers.world_with_messaging import Namespace, World
from tests.unit.orchestrations.examples import run_request

FAILURE = Failure(type="DataRejected", message="one class only", permanent=True)


def a_letter(message_id: str) -> Rejected:
    return Rejected(
        message_id=message_id, kind="run", body="{}", reason=f"why {message_id}", description="how"
    )


def test_a_run_is_dead_lettered_with_reason_and_description(
    world: World, namespace: Namespace
) -> None:
    run = "digits-0123456789abcdef-7"
    request = DeadLetter(run=run, request=run_request(7), failure=FAILURE)
    dead_letter(world.clients, request)
    dead_letter(world.clients, request)  # as after a crash between effect and checkpoint
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.message_id == run
    assert letter.dead_letter_reason == "DataRejected"
    assert letter.dead_letter_error_description == "one class only"
    assert RunRequest.model_validate_json(str(letter)) == run_request(7)


def test_callers_may_dead_letter_each_others_messages(world: World, namespace: Namespace) -> None:
    names = [f"at-once-{number}" for number in range(4)]

    def reject_one(name: str) -> None:
        reject(world.clients, a_letter(name))

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(reject_one, names))
    letters = namespace.take_present(REJECTED_RUNS, dead=True)
    assert {letter.message_id: letter.dead_letter_reason for letter in letters} == {
        name: f"why {name}" for name in names
    }


def test_a_message_that_nobody_can_read_is_dead_lettered_and_alerted(
    world: World, namespace: Namespace
) -> None:
    failure = Failure(type="InvalidRequest", message="no JSON", permanent=True)
    reject_message(world.clients, b"\xff not json", failure)
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.dead_letter_reason == "InvalidRequest"
    assert str(letter).endswith("not json")
    alert = namespace.take_alert("message-rejected", "no JSON")
    assert alert.application_properties == {b"kind": b"message-rejected", b"severity": b"error"}


def give_up(world: World, queue: str) -> None:
    """Fail deliveries of the only message until Service Bus dead-letters it."""
    with world.clients.service_bus.get_queue_receiver(queue) as receiver:
        for _ in range(10):  # MaxDeliveryCount of the queue
            (received,) = receiver.receive_messages(max_message_count=1, max_wait_time=5)
            receiver.abandon_message(received)


def test_what_service_bus_gave_up_on_is_collected_with_an_alert(
    world: World, namespace: Namespace
) -> None:
    message = retry_message(run_request(9))
    world.clients.message_queues.send(RETRIES, message)
    give_up(world, RETRIES)
    assert collect(world.clients, RETRIES, "run") == 1
    (letter,) = namespace.take_present(REJECTED_RUNS, dead=True)
    assert letter.message_id == message.message_id
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert letter.application_properties is not None
    assert letter.application_properties[b"run"] == message.message_id.encode()
    assert namespace.take_alert("message-rejected", message.message_id)


@pytest.mark.parametrize("queue", ["blob-events", ROLLOUTS])  # the second one detects duplicates
def test_events_that_service_bus_gave_up_on_are_put_back(
    world: World, namespace: Namespace, queue: str
) -> None:
    event = Message(message_id="an-event", body='{"id": "an-event"}')
    world.clients.message_queues.send(queue, event)
    give_up(world, queue)
    assert give_back(world.clients, queue) == 1
    (message,) = namespace.take(queue)
    assert str(message) == event.body
    assert give_back(world.clients, queue) == 0


@pytest.fixture
def receives(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(requested messages, received messages) of each receive."""
    found: list[tuple[int, int]] = []
    receive = ServiceBusReceiver.receive_messages

    def counted(
        receiver: ServiceBusReceiver, max_message_count: int, max_wait_time: float
    ) -> list[ServiceBusReceivedMessage]:
        batch = receive(receiver, max_message_count, max_wait_time)
        found.append((max_message_count, len(batch)))
        return batch

    monkeypatch.setattr(ServiceBusReceiver, "receive_messages", counted)
    return found


def dead_letter_together(world: World, *names: str) -> None:
    letters = [a_letter(name).to_message() for name in names]
    world.clients.message_queues.send(REJECTED_RUNS, *letters)
    assert sweep(world.clients) == len(letters)


def names_in(world: World, *, take: bool) -> list[str]:
    """The ids of the letters that one pass finds."""
    found: list[str] = []
    with dead_letters(world.clients, REJECTED_RUNS) as letters:
        for letter in letters:
            found.append(str(letter.message_id))
            if take:
                letters.take(letter)
    return found


def test_a_pass_asks_for_what_is_there_and_waits_for_nothing_more(
    world: World, namespace: Namespace, receives: list[tuple[int, int]]
) -> None:
    assert namespace.peek(REJECTED_RUNS, dead=True) == []
    names = [f"all-{number}" for number in range(7)]
    dead_letter_together(world, *names)
    receives.clear()
    assert names_in(world, take=False) == names
    assert names_in(world, take=True) == names
    assert names_in(world, take=True) == []
    assert receives == [(7, 7), (7, 7)]


def test_a_pass_waits_once_for_a_letter_that_another_receiver_has_locked(
    world: World, receives: list[tuple[int, int]]
) -> None:
    dead_letter_together(world, "theirs", "ours")
    service_bus = world.clients.service_bus
    with service_bus.get_queue_receiver(REJECTED_RUNS, sub_queue="deadletter") as other:
        (theirs,) = other.receive_messages(max_message_count=1, max_wait_time=5)
        receives.clear()
        assert names_in(world, take=True) == ["ours"]
        assert receives == [(2, 1), (1, 0)]
        other.abandon_message(theirs)
    assert names_in(world, take=True) == ["theirs"]
