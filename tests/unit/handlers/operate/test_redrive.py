"""While a release is deployed, an older worker receives messages of the newer release."""

from __future__ import annotations

import asyncio
import inspect
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.functions.servicebus import ServiceBusMessage

import function_app
from handlers.operate import redrive as module
from handlers.operate.redrive import DELAYS_SECONDS, put_back
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from handlers.platform.settings import Settings
from handlers.training.retries import retry_message
from orchestrations.contracts.base import Failure
from orchestrations.errors import OfAnotherRelease
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import DATASET, run_request

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ERROR = OfAnotherRelease("added_since: Extra inputs are not permitted")
NONE: Any = None
"""Instead of the properties that an extension does not have."""
RUN = f"digits-{DATASET.version}-2"


class Queues:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []

    def send(self, entity: str, *messages: Message) -> None:
        self.sent += [(entity, each) for each in messages]


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    queues = Queues()
    monkeypatch.setattr(Clients, "message_queues", queues)
    return queues


def received(message: Message) -> ServiceBusMessage:
    properties: dict[str, Any] = {**message.properties}
    return ServiceBusMessage(
        body=message.body.encode(),
        message_id=message.message_id,
        subject=message.subject,
        application_properties=properties,
        user_properties=NONE,
    )


def of_a_newer_release() -> Message:
    message = retry_message(run_request(2))
    document = json.loads(message.body) | {"added_since": "hunter2"}
    return Message(
        message_id=message.message_id,
        subject=message.subject,
        properties=message.properties,
        body=json.dumps(document),
    )


@pytest.mark.parametrize(
    ("function", "queue"),
    [
        ("on_retry", "retries"),
        ("on_rollout", "rollouts"),
        ("deliver_notification", "notifications"),
    ],
)
def test_each_function_puts_a_message_of_a_newer_release_back(
    queues: Queues, function: str, queue: str
) -> None:
    of_the_worker = getattr(function_app, function)._function.get_user_function()
    given: list[Any] = [received(of_a_newer_release()), TaskHub()]
    body = inspect.unwrap(of_the_worker)
    ended = body(*given[: len(inspect.signature(body).parameters)])
    if inspect.isawaitable(ended):
        asyncio.run(_finish(ended))
    ((entity, _),) = queues.sent
    assert entity == queue


async def _finish(awaitable: Any) -> None:
    await awaitable


def test_it_comes_back_later_and_later_with_all_that_it_had_and_then_is_dead_lettered(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    rejected: list[tuple[bytes, Failure]] = []

    def reject(_: Clients, body: bytes, failure: Failure) -> None:
        rejected.append((body, failure))

    monkeypatch.setattr(module, "reject_message", reject)
    first = message = of_a_newer_release()
    ids: list[str] = []
    for delay in DELAYS_SECONDS:
        for _ in range(2):  # as after the death of the process before the message is completed
            put_back(Clients(Settings({})), "retries", received(message), ERROR, now=NOW)
        (_, message), (_, again) = queues.sent
        queues.sent.clear()
        assert message.message_id == again.message_id, "the queue drops the second one"
        assert message.enqueue_at == NOW + timedelta(seconds=delay)
        assert (message.body, message.subject) == (first.body, first.subject)
        assert message.properties.items() >= first.properties.items()
        ids.append(message.message_id)
    assert ids == [f"{RUN}:put-back-{number}" for number in range(1, len(DELAYS_SECONDS) + 1)]
    put_back(Clients(Settings({})), "retries", received(message), ERROR, now=NOW)
    assert queues.sent == []
    ((body, failure),) = rejected
    assert body == first.body.encode()
    assert failure.type == "OfAnotherRelease"
    assert "added_since" in failure.message
