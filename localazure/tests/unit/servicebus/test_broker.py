"""The broker over a real database, with a clock that is set by hand."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from harness.running_broker import Receiver, World, entity, message
from localazure.servicebus import broker, store
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.configuration import NamespaceConfiguration
from localazure.servicebus.entities import Namespace
from localazure.servicebus.filters import MessageFacts
from localazure.servicebus.queues import Event
from localazure.sqlite.database import Database


async def test_receivers_take_turns_and_get_no_more_than_their_credit(world: World) -> None:
    first, second = world.receive("q", credit=2), world.receive("q", credit=1)
    await world.broker.send(world.entity("q"), [message(str(n)) for n in range(4)])
    assert (len(first.bodies), len(second.bodies)) == (2, 1)
    assert sorted(first.bodies + second.bodies) == [b"0", b"1", b"2"]
    second.credit = 1
    world.broker.pump(world.entity("q").active)
    assert second.bodies[-1] == b"3"


async def test_duplicates_are_dropped_within_the_window_even_over_a_restart(world: World) -> None:
    queue = world.entity("q")
    first = await world.broker.send(queue, [message("1", message_id="m")])
    again = await asyncio.gather(
        *(world.broker.send(queue, [message("2", message_id="m")]) for _ in range(3))
    )
    assert again == [first] * 3
    await world.restart()
    for due_ms in (None, world.now_ms + 1):
        late = message("3", message_id="m", due_ms=due_ms)
        assert await world.broker.send(world.entity("q"), [late]) == first
    world.now_ms += 5000
    await world.broker.send(world.entity("q"), [message("4", message_id="m")])
    assert world.receive("q").bodies == [b"1", b"4"]


async def test_a_batch_is_stored_whole_or_not_at_all(world: World) -> None:
    broken: Any = message("2")
    object.__setattr__(broken, "priority", object())  # SQLite cannot store it
    with pytest.raises(sqlite3.Error):
        await world.broker.send(world.entity("q"), [message("1"), broken])
    assert world.receive("q").bodies == []


async def test_a_decision_that_cannot_be_written_leaves_the_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.broker.send(world.entity("q"), [message("1")])
    receiver = world.receive("q", credit=1)
    ((token, _),) = receiver.got

    def full(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    assert token is not None
    with monkeypatch.context() as patched:
        patched.setattr(store, "apply", full)
        with pytest.raises(sqlite3.OperationalError):
            await world.broker.settle(world.entity("q").active, token, Event.COMPLETE)
    assert world.receive("q").bodies == [b"1"]


async def test_messages_that_expire_while_the_broker_is_down_are_found_at_its_start(
    world: World,
) -> None:
    await world.broker.send(world.entity("short"), [message("old"), message("new", ttl_ms=50)])
    await world.stop()
    world.now_ms += 100
    await world.start()
    await world.pass_time(0, lambda: len(world.entity("short").active.queue) == 0)
    assert world.receive("short").bodies == []


async def test_forwarding_follows_every_hop(world: World) -> None:
    await world.broker.send(world.entity("forwarding"), [message("1")])
    await world.broker.send(world.entity("t"), [message("2")])
    assert world.receive("q", credit=9).bodies == [b"1", b"2"]
    assert world.receive("t/subscriptions/a").bodies == [b"2"]
    assert world.receive("t/subscriptions/b").bodies == []


async def test_a_message_that_cannot_be_forwarded_is_a_transfer_dead_letter(world: World) -> None:
    await world.broker.send(world.entity("circle"), [message("1", ttl_ms=1)])
    await world.broker.send(world.entity("doomed"), [message("2")])
    ((token, _),) = world.receive("doomed").got
    assert token is not None
    await world.broker.settle(world.entity("doomed").active, token, Event.DEAD_LETTER)
    await world.restart()
    world.now_ms += 1000
    for path, body in (("circle", b"1"), ("back", b"2")):
        undelivered = world.entity(path).sub_queues[SubQueueKind.TRANSFER_DEAD_LETTER]
        for event in (Event.ABANDON, Event.DEAD_LETTER, Event.COMPLETE):  # it stays where it is
            receiver = world.receive(path, 1, SubQueueKind.TRANSFER_DEAD_LETTER)
            ((token, payload),) = receiver.got
            assert token is not None
            assert receiver.bodies == [body]
            properties = amqp_message.application_properties(payload)
            assert properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"
            await world.broker.settle(undelivered, token, event)
        assert world.broker.peek(undelivered, 1, 9) == []
        assert world.receive(path).bodies == []


@pytest.mark.parametrize("kilobytes", [1024, 1025])
def test_a_message_that_is_too_large_for_the_next_entity_is_a_transfer_dead_letter(
    kilobytes: int,
) -> None:
    large = entity("large", max_message_size_in_kilobytes=2048, forward_to="small")
    premium = {"sku": "Premium", "queues": [large, entity("small")]}
    configuration = NamespaceConfiguration.model_validate(premium)
    namespace = Namespace(configuration, {"large": 1, "small": 2})
    queue, facts = namespace.find("large"), MessageFacts(p.Properties(), b"x" * kilobytes * 1024)
    assert queue is not None
    (destination,) = namespace.route(queue, facts)
    if kilobytes == 1024:
        assert destination == store.Destination(2, None)
    else:
        assert destination.entity == queue.number
        assert destination.kind is SubQueueKind.TRANSFER_DEAD_LETTER
        assert "takes 1048576" in destination.properties["DeadLetterErrorDescription"]


async def test_messages_of_an_earlier_version_are_forwarded_if_their_queue_does_so_now(
    tmp_path: Path,
) -> None:
    """The earlier schema has a flag for dead letters, and the earlier configuration no forward."""
    world = World(tmp_path / "servicebus.db")
    database = Database(tmp_path / "servicebus.db", store.MIGRATIONS[:1])

    def write(connection: sqlite3.Connection) -> None:
        for path in ("forwarding", "t/subscriptions/a"):
            entity = store.entity_id(connection, path)
            for flag in (0, 1):
                connection.execute(
                    "INSERT INTO message (entity, sequence_number, is_dead_letter, state,"
                    " enqueued_ms, delivery_annotations, annotations, bare)"
                    " VALUES (?, ?, ?, 0, 0, ?, ?, ?)",
                    (entity, flag, flag, encode({}), encode({}), message(f"{path} {flag}").bare),
                )

    await database.write(write)
    database.close()
    await world.start()
    assert world.receive("q").bodies == [b"forwarding 0", b"forwarding 1"]
    assert world.receive("t/subscriptions/a").bodies == [b"t/subscriptions/a 0"]
    dead = world.receive("t/subscriptions/a", kind=SubQueueKind.DEAD_LETTER)
    assert dead.bodies == [b"t/subscriptions/a 1"]
    await world.stop()


async def test_deleted_messages_are_gone_before_they_are_delivered(world: World) -> None:
    queue = world.entity("q")
    await world.broker.send(queue, [message("1"), message("2")])
    taker = Receiver(2, receives_and_deletes=True)
    world.broker.attach(queue.active, taker)
    world.broker.pump(queue.active)
    assert taker.bodies == []
    await world.pass_time(0, lambda: len(taker.got) == 2)
    assert world.broker.peek(queue.active, 1, 10) == []


async def test_a_message_stays_if_its_deletion_cannot_be_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = world.entity("q")
    await world.broker.send(queue, [message("1")])
    failures = 0

    def full_at_first(*arguments: Any) -> None:
        nonlocal failures
        failures += 1
        if failures == 1:
            raise sqlite3.OperationalError("database or disk is full")
        real_apply(*arguments)

    real_apply = store.apply
    monkeypatch.setattr(store, "apply", full_at_first)
    monkeypatch.setattr(broker, "RETRY_DELAY_SECONDS", 0.001)
    taker = Receiver(1, receives_and_deletes=True)
    world.broker.attach(queue.active, taker)
    world.broker.pump(queue.active)
    await world.pass_time(0, lambda: bool(taker.got))
    assert (taker.bodies, failures) == ([b"1"], 2)


async def test_a_peek_is_no_larger_than_a_message_may_be(world: World) -> None:
    queue = world.entity("q")
    size = queue.message_bytes // 3
    for number in range(25):
        await world.broker.send(queue, [message(str(number) + "x" * size)])
    seen = 0
    while found := world.broker.peek(queue.active, seen + 1, 250):
        assert len(found) in {1, 2}
        assert sum(map(len, found)) <= queue.message_bytes
        seen += len(found)
    assert seen == 25
    assert len(world.broker.peek(queue.active, 1, 1)) == 1
