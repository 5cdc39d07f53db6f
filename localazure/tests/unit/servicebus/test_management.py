"""Requests to the management node of an entity."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from harness.running_broker import World, message
from localazure.servicebus import management
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.types import Array, Described, Int, Symbol, Timestamp, UInt, ULong


class Manager:
    """Sends requests to the management node of an entity."""

    def __init__(self, world: World, path: str = "q") -> None:
        self._world = world
        self._path = path

    async def ask(self, operation: str, body: Any) -> tuple[int, str | None, Any]:
        properties = p.Properties(message_id=uuid.uuid4(), reply_to="me")
        details = {"operation": f"com.microsoft:{operation}"}
        request = amqp_message.value_message(properties, details, body)
        sub_queue = self._world.entity(self._path).active
        reply = await management.answer(self._world.broker, sub_queue, request)
        assert reply.reply_to == "me"
        details = amqp_message.application_properties(reply.payload)
        assert amqp_message.properties(reply.payload).correlation_id == properties.message_id
        body = amqp_message.body_value(reply.payload)
        return details["statusCode"], details.get("errorCondition"), body


async def test_management_requests_end_to_end(world: World) -> None:
    manager = Manager(world)
    due = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(world.now_ms + 1000)}
    annotated = encode(Described(ULong(0x72), due))
    body = {"messages": [{"message-id": "m", "message": annotated + message("s").bare}]}
    status, _, scheduled = await manager.ask("schedule-message", body)
    assert (status, scheduled) == (200, {"sequence-numbers": Array((1,))})
    peek = {"from-sequence-number": 1, "message-count": Int(5)}
    status, _, peeked = await manager.ask("peek-message", peek)
    assert (status, len(peeked["messages"])) == (200, 1)
    numbers = {"sequence-numbers": Array((1,))}
    assert (await manager.ask("cancel-scheduled-message", numbers))[0] == 200
    assert (await manager.ask("peek-message", peek))[0] == 204
    not_found = (404, "com.microsoft:message-not-found")
    assert (await manager.ask("cancel-scheduled-message", numbers))[:2] == not_found
    await world.broker.send(world.entity("q"), [message("1"), message("2")])
    tokens = [token for token, _ in world.receive("q", credit=2).got]
    locked = {"lock-tokens": Array(tuple(tokens))}
    status, _, renewed = await manager.ask("renew-lock", locked)
    assert (status, renewed["expirations"].items) == (200, (Timestamp(world.now_ms + 1000),) * 2)
    settle = "update-disposition"
    assert (await manager.ask(settle, {"disposition-status": "defered", **locked}))[0] == 200
    lost = (410, "com.microsoft:message-lock-lost")
    assert (await manager.ask(settle, {"disposition-status": "completed", **locked}))[:2] == lost
    assert (await manager.ask("renew-lock", locked))[:2] == lost
    deferred = {"sequence-numbers": Array((2, 3)), "receiver-settle-mode": UInt(1)}
    receive = "receive-by-sequence-number"
    status, _, received = await manager.ask(receive, deferred)
    assert status == 200
    assert all(isinstance(item["lock-token"], uuid.UUID) for item in received["messages"])
    assert (await manager.ask(receive, deferred))[:2] == not_found
    (first, _) = received["messages"]
    dead = {
        "disposition-status": "suspended",
        "lock-tokens": Array((first["lock-token"],)),
        "deadletter-reason": "r",
        "properties-to-modify": {"attempt": 3},
    }
    assert (await manager.ask(settle, dead))[0] == 200
    ((_, payload),) = world.receive("q", kind=SubQueueKind.DEAD_LETTER).got
    found = amqp_message.application_properties(payload)
    assert found == {"DeadLetterReason": "r", "attempt": 3}


ARGUMENT_ERROR = (400, "com.microsoft:argument-error")


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        ("add-rule", {}, (501, "amqp:not-implemented")),
        ("peek-message", [], ARGUMENT_ERROR),
        ("peek-message", {}, ARGUMENT_ERROR),
        ("renew-lock", {"lock-tokens": "x"}, ARGUMENT_ERROR),
        ("schedule-message", {"messages": [{"message": b"junk"}]}, ARGUMENT_ERROR),
        ("update-disposition", {"disposition-status": "lost", "lock-tokens": []}, ARGUMENT_ERROR),
    ],
)
async def test_invalid_requests_are_refused(
    world: World, operation: str, body: Any, expected: tuple[int, str]
) -> None:
    assert (await Manager(world).ask(operation, body))[:2] == expected


async def test_messages_are_scheduled_where_they_can_be_sent(world: World) -> None:
    manager = Manager(world, "t/subscriptions/a")
    status, condition, _ = await manager.ask("schedule-message", {"messages": []})
    assert (status, condition) == (400, "amqp:not-allowed")
