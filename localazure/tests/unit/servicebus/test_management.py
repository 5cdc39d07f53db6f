"""Requests to the management node of an entity."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from harness.running_broker import World
from localazure.servicebus import management
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp import performatives as p


class Manager:
    """Sends requests to the management node of an entity."""

    def __init__(self, world: World, path: str = "q") -> None:
        self._world = world
        self._path = path

    async def ask(self, operation: str, body: Any) -> tuple[int, str | None]:
        properties = p.Properties(message_id=uuid.uuid4(), reply_to="me")
        details = {"operation": f"com.microsoft:{operation}"}
        request = amqp_message.value_message(properties, details, body)
        sub_queue = self._world.entity(self._path).active
        reply = await management.answer(self._world.broker, sub_queue, request)
        assert reply.reply_to == "me"
        details = amqp_message.application_properties(reply.payload)
        assert amqp_message.properties(reply.payload).correlation_id == properties.message_id
        return details["statusCode"], details.get("errorCondition")


ARGUMENT_ERROR = (400, "com.microsoft:argument-error")
NOT_FOUND = (404, "com.microsoft:message-not-found")


@pytest.mark.parametrize(
    ("operation", "body", "expected"),
    [
        ("add-rule", {}, (501, "amqp:not-implemented")),
        ("peek-message", [], ARGUMENT_ERROR),
        ("peek-message", {}, ARGUMENT_ERROR),
        ("renew-lock", {"lock-tokens": "x"}, ARGUMENT_ERROR),
        ("schedule-message", {"messages": [{"message": b"junk"}]}, ARGUMENT_ERROR),
        ("cancel-scheduled-message", {"sequence-numbers": [7]}, NOT_FOUND),
        ("receive-by-sequence-number", {"sequence-numbers": [7]}, NOT_FOUND),
        (
            "update-disposition",
            {"disposition-status": "completed", "lock-tokens": [uuid.uuid4()]},
            (410, "com.microsoft:message-lock-lost"),
        ),
        ("update-disposition", {"disposition-status": "lost", "lock-tokens": []}, ARGUMENT_ERROR),
    ],
)
async def test_invalid_requests_are_refused(
    world: World, operation: str, body: Any, expected: tuple[int, str]
) -> None:
    assert await Manager(world).ask(operation, body) == expected


async def test_messages_are_scheduled_where_they_can_be_sent(world: World) -> None:
    manager = Manager(world, "t/subscriptions/a")
    refusal = await manager.ask("schedule-message", {"messages": []})
    assert refusal == (400, "amqp:not-allowed")
