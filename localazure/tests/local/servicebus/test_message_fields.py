"""Fields that the broker sets or keeps, read with the unmodified SDK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader
from azure.servicebus.exceptions import MessageNotFoundError

from harness.service_bus_handlers import Handlers, body, receive_all, receive_one

LOCK_TOKEN = b"x-opt-lock-token"


def test_a_message_keeps_its_delivery_annotations_and_priority(handlers: Handlers) -> None:
    receiver = handlers.receiver("plain")
    sent = AmqpAnnotatedMessage(
        data_body=b"annotated",
        header=AmqpMessageHeader(priority=7),
        delivery_annotations={"own": 1},
    )
    handlers.sender("plain").send_messages(sent)
    got = receive_one(receiver)
    assert got.raw_amqp_message.header is not None
    assert got.raw_amqp_message.header.priority == 7
    assert got.raw_amqp_message.delivery_annotations == {b"own": 1, LOCK_TOKEN: got.lock_token}
    receiver.dead_letter_message(got)
    (dead,) = receive_all(handlers.dead_letters("plain"), 1)
    assert dead.raw_amqp_message.header is not None
    assert dead.raw_amqp_message.header.priority == 7
    assert dead.raw_amqp_message.delivery_annotations is not None
    assert dead.raw_amqp_message.delivery_annotations[b"own"] == 1


def test_a_deferred_message_is_received_by_its_number_only(handlers: Handlers) -> None:
    receiver = handlers.receiver("plain")
    handlers.sender("plain").send_messages(ServiceBusMessage("later"))
    got = receive_one(receiver)
    number = got.sequence_number
    assert number is not None
    receiver.defer_message(got)
    assert receiver.receive_messages(1, max_wait_time=0.1) == []
    (peeked,) = receiver.peek_messages(1, sequence_number=number)
    assert not peeked.raw_amqp_message.delivery_annotations
    (deferred,) = receiver.receive_deferred_messages(number)
    assert body(deferred) == b"later"
    assert deferred.lock_token is not None
    assert deferred.raw_amqp_message.delivery_annotations == {LOCK_TOKEN: deferred.lock_token}
    with pytest.raises(MessageNotFoundError):
        receiver.receive_deferred_messages(number)
    assert receiver.renew_message_lock(deferred) > datetime.now(UTC)
    receiver.dead_letter_message(deferred, reason="settled by request")
    (dead,) = receive_all(handlers.dead_letters("plain"), 1)
    assert (body(dead), dead.dead_letter_reason) == (b"later", "settled by request")


@pytest.mark.parametrize("queue", ["plain", "forwarding"])
def test_a_scheduled_message_keeps_its_enqueue_time(handlers: Handlers, queue: str) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    handlers.sender(queue).schedule_messages(ServiceBusMessage("scheduled"), due)
    handlers.sender(queue).send_messages(
        ServiceBusMessage("annotated", scheduled_enqueue_time_utc=due)
    )
    found = receive_all(handlers.receiver(queue), 2)
    assert datetime.now(UTC) >= due
    assert {body(item) for item in found} == {b"scheduled", b"annotated"}
    assert {item.scheduled_enqueue_time_utc for item in found} == {due}
