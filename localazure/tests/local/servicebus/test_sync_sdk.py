"""The scenarios of a Service Bus client, with the unmodified SDK (sync)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from harness.service_bus_handlers import (
    WAIT_SECONDS,
    Handlers,
    body,
    is_empty,
    receive_all,
    receive_one,
)
from localazure.runtime.environment import Environment


def test_a_message_arrives_with_all_its_fields(handlers: Handlers) -> None:
    sent = ServiceBusMessage(
        b"\x00body\xff",
        message_id="id-1",
        subject="a subject",
        content_type="application/json",
        correlation_id="c-1",
        to="somewhere",
        reply_to="nobody",
        application_properties={"text": "ä", "number": 7, "flag": True, "real": 0.5},
        time_to_live=timedelta(hours=1),
    )
    before = datetime.now(UTC)
    handlers.sender("plain").send_messages(sent)
    receiver = handlers.receiver("plain")
    got = receive_one(receiver)
    assert body(got) == b"\x00body\xff"
    assert (got.message_id, got.subject, got.content_type) == (
        "id-1",
        "a subject",
        "application/json",
    )
    assert (got.correlation_id, got.to, got.reply_to) == ("c-1", "somewhere", "nobody")
    assert got.application_properties == {
        b"text": "ä".encode(),
        b"number": 7,
        b"flag": True,
        b"real": 0.5,
    }
    assert got.time_to_live == timedelta(hours=1)
    assert got.delivery_count == 0
    assert got.enqueued_time_utc is not None
    assert abs(got.enqueued_time_utc - before) < timedelta(seconds=5)
    assert got.locked_until_utc is not None
    assert got.locked_until_utc > before + timedelta(seconds=20)
    assert isinstance(got.lock_token, uuid.UUID)
    receiver.complete_message(got)
    assert is_empty(receiver)


def test_dead_letters_carry_reason_and_description(handlers: Handlers) -> None:
    sent = ServiceBusMessage("bad", application_properties={"kept": 1})
    handlers.sender("plain").send_messages(sent)
    receiver = handlers.receiver("plain")
    receiver.dead_letter_message(receive_one(receiver), reason="Poison", error_description="why")
    (dead,) = receive_all(handlers.dead_letters("plain"), 1)
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Poison", "why")
    assert dead.application_properties is not None
    assert dead.application_properties[b"kept"] == 1
    assert body(dead) == b"bad"
    assert is_empty(receiver)


def test_receive_and_delete_settles_on_delivery(handlers: Handlers) -> None:
    handlers.sender("plain").send_messages([ServiceBusMessage(str(n)) for n in range(5)])
    receiver = handlers.receiver("plain", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    found: list[bytes] = []
    while len(found) < 5:
        found += [body(item) for item in receiver.receive_messages(5, max_wait_time=WAIT_SECONDS)]
    assert found == [b"0", b"1", b"2", b"3", b"4"]
    assert is_empty(receiver)


def test_an_expired_lock_leads_to_redelivery_and_settling_it_fails(handlers: Handlers) -> None:
    handlers.sender("hasty").send_messages(ServiceBusMessage("slow"))
    receiver = handlers.receiver("hasty")
    first = receive_one(receiver)
    second = receive_one(receiver)
    assert second.sequence_number == first.sequence_number
    assert second.delivery_count == 1
    with pytest.raises(MessageLockLostError):
        receiver.complete_message(first)
    with pytest.raises(MessageLockLostError):
        receiver.renew_message_lock(first)
    receiver.complete_message(second)


def test_a_lock_can_be_renewed_by_hand_and_by_the_renewer(handlers: Handlers) -> None:
    handlers.sender("hasty").send_messages(ServiceBusMessage("long work"))
    receiver = handlers.receiver("hasty")
    message = receive_one(receiver)
    first_until = message.locked_until_utc
    assert first_until is not None
    renewed = receiver.renew_message_lock(message)
    assert renewed >= first_until
    with AutoLockRenewer(max_lock_renewal_duration=30) as renewer:
        renewer.register(receiver, message)
        deadline = time.monotonic() + WAIT_SECONDS
        while datetime.now(UTC) < first_until + timedelta(seconds=1):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        receiver.complete_message(message)
    assert is_empty(receiver)


def test_scheduled_messages_come_when_due_and_can_be_cancelled(handlers: Handlers) -> None:
    sender, receiver = handlers.sender("plain"), handlers.receiver("plain")
    due = datetime.now(UTC) + timedelta(seconds=1)
    numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
    assert len(numbers) == 2
    states = [message.state.name for message in receiver.peek_messages(5, sequence_number=1)]
    assert states == ["SCHEDULED", "SCHEDULED"]
    sender.cancel_scheduled_messages(numbers[0])
    got = receive_one(receiver)
    assert body(got) == b"b"
    assert datetime.now(UTC) >= due
    receiver.complete_message(got)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(numbers[1])


def test_a_topic_copies_to_the_subscriptions_whose_rules_match(handlers: Handlers) -> None:
    publisher = handlers.topic_sender("news")
    properties: dict[str | bytes, Any] = {"level": "high"}
    publisher.send_messages(
        ServiceBusMessage("1", subject="alert", application_properties=properties)
    )
    publisher.send_messages(ServiceBusMessage("2", subject="alert"))
    publisher.send_messages(ServiceBusMessage("3", application_properties=properties))
    everything = receive_all(handlers.subscriber("news", "all"), 3)
    assert [body(item) for item in everything] == [b"1", b"2", b"3"]
    urgent = handlers.subscriber("news", "urgent")
    assert [body(item) for item in receive_all(urgent, 1)] == [b"1"]
    assert is_empty(urgent)


def test_dead_letters_can_be_forwarded(handlers: Handlers) -> None:
    handlers.sender("forwarding").send_messages(ServiceBusMessage("bad"))
    receiver = handlers.receiver("forwarding")
    receiver.abandon_message(receive_one(receiver))
    (got,) = receive_all(handlers.receiver("collected"), 1)
    assert got.dead_letter_source == "forwarding"
    assert got.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_what_cannot_be_forwarded_is_a_transfer_dead_letter(
    client: ServiceBusClient, handlers: Handlers
) -> None:
    handlers.sender("circle").send_messages(ServiceBusMessage("lost", message_id="m"))
    kind = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
    (got,) = receive_all(handlers.receiver("circle", sub_queue=kind), 1)
    assert (got.message_id, got.dead_letter_reason) == ("m", "MaxTransferHopCountExceeded")
    raised = refusals(
        client.get_queue_receiver("circle").__enter__,
        client.get_queue_receiver("forwarding", sub_queue="deadletter").__enter__,
    )
    for error in raised:
        assert isinstance(error, ServiceBusError)
        assert "receiver on an entity with auto-forwarding enabled" in str(error)


def test_peeking_changes_nothing(handlers: Handlers) -> None:
    receiver = handlers.receiver("plain")
    handlers.sender("plain").send_messages([ServiceBusMessage(str(n)) for n in range(4)])
    first = receiver.peek_messages(2, sequence_number=1)
    rest = receiver.peek_messages(10, sequence_number=(first[-1].sequence_number or 0) + 1)
    assert [body(item) for item in first + rest] == [b"0", b"1", b"2", b"3"]
    assert first[0].lock_token is None
    assert len(receive_all(receiver, 4)) == 4


def test_a_batch_is_one_send_of_many_messages(handlers: Handlers) -> None:
    sender = handlers.sender("plain")
    batch = sender.create_message_batch()
    count = 200
    for number in range(count):
        batch.add_message(ServiceBusMessage(b"x" * 1000, message_id=str(number)))
    assert batch.max_size_in_bytes == 262_144
    sender.send_messages(batch)
    found = receive_all(handlers.receiver("plain"), count)
    assert sorted(int(item.message_id or -1) for item in found) == list(range(count))


def test_large_bodies_pass_and_too_large_ones_are_refused(handlers: Handlers) -> None:
    sender = handlers.sender("plain")
    large = bytes(range(256)) * 800
    sender.send_messages(ServiceBusMessage(large))
    (got,) = receive_all(handlers.receiver("plain"), 1)
    assert body(got) == large
    with pytest.raises(MessageSizeExceededError, match="262144"):
        sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    sender.send_messages(ServiceBusMessage("the link lives on"))
    receive_all(handlers.receiver("plain"), 1)


def test_prefetched_messages_are_released_on_close(
    client: ServiceBusClient, handlers: Handlers
) -> None:
    handlers.sender("plain").send_messages([ServiceBusMessage(str(n)) for n in range(30)])
    with client.get_queue_receiver("plain", prefetch_count=20) as eager:
        got = receive_one(eager)
        eager.complete_message(got)
    again = receive_all(handlers.receiver("plain"), 29)
    assert {item.delivery_count for item in again} == {0}


def refusals(*attempts: Callable[[], Any]) -> list[BaseException | None]:
    """The error of each attempt. They run in parallel: the SDK takes a second for each."""
    with ThreadPoolExecutor(len(attempts)) as pool:
        return [future.exception() for future in [pool.submit(item) for item in attempts]]


def test_an_unknown_entity_is_not_found(client: ServiceBusClient) -> None:
    raised = refusals(
        client.get_queue_sender("missing").__enter__,
        client.get_queue_receiver("missing").__enter__,
        client.get_subscription_receiver("news", "missing").__enter__,
    )
    for error in raised:
        # The SDK reports a refused token; the reason is in the inner exception.
        assert isinstance(error, ServiceBusAuthenticationError)
        assert "Status code: 404" in str(error.inner_exception)
        assert "could not be found" in str(error.inner_exception)


def test_an_authorization_rule_has_its_claims_only(environment: Environment) -> None:
    def connected(rule: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            environment.service_bus_connection_string_of(rule), retry_total=0
        )

    with connected("send-only") as sending, connected("listen-only") as listening:
        with sending.get_queue_sender("collected") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with listening.get_queue_receiver("collected") as receiver:
            receiver.complete_message(receive_one(receiver))
        not_received, not_sent = refusals(
            sending.get_queue_receiver("collected").__enter__,
            listening.get_queue_sender("collected").__enter__,
        )
    for error, claim in ((not_received, "Listen"), (not_sent, "Send")):
        assert isinstance(error, ServiceBusAuthorizationError)
        assert f"'{claim}' claim(s) are required to perform this operation" in str(error)


def test_the_rule_of_a_queue_is_one_for_this_queue_only(environment: Environment) -> None:
    text = environment.service_bus_connection_string_of("send-only", "collected")
    with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with client.get_queue_sender("collected") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("collected") as receiver:
            receiver.complete_message(receive_one(receiver))
    elsewhere = text.replace("EntityPath=collected;", "")
    with ServiceBusClient.from_connection_string(elsewhere, retry_total=0) as client:
        (error,) = refusals(client.get_queue_sender("plain").__enter__)
    assert isinstance(error, ServiceBusAuthenticationError)
    assert "the key is that of 'collected', not of 'plain'" in str(error.inner_exception)
