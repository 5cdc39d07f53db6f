from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from harness.waiting import eventually
from localazure.runtime.environment import Environment
from localazure.servicebus.service import serve as serve_service_bus

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "test",
                "Queues": [{"Name": "plain"}, {"Name": "batches"}],
                "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all"}]}],
            }
        ]
    }
}


def settings(environment: Environment) -> dict[str, str]:
    environment.service_bus_config.write_text(json.dumps(CONFIG))
    return {"AzureWebJobsBus": environment.service_bus_connection_string, "QUEUE": "plain"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(shared: Any) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of the app, which runs with the broker."""
    names = settings(shared.environment)
    async with (
        serve_service_bus(shared.environment),
        shared.running_app("service_bus", **names) as (_, client),
    ):
        yield client


@contextlib.asynccontextmanager
async def sender(environment: Environment) -> AsyncGenerator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        environment.service_bus_connection_string
    ) as client:
        yield client


async def send(environment: Environment, entity: str, *messages: ServiceBusMessage) -> None:
    async with sender(environment) as client:
        is_topic = entity == "news"
        get = client.get_topic_sender if is_topic else client.get_queue_sender
        async with get(entity) as link:
            await link.send_messages(list(messages))


async def until_empty(environment: Environment, queue: str) -> None:
    """Wait until all received messages are completed."""
    async with (
        asyncio.timeout(30),
        sender(environment) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while await receiver.peek_messages(1, sequence_number=1):
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("client")
async def test_messages_arrive_whole_and_are_completed(shared: Any) -> None:
    message = ServiceBusMessage(
        "hello",
        message_id="run:1",
        subject="retry",
        content_type="application/json",
        application_properties={"attempt": 1, "pipeline": "digits"},
    )
    await send(shared.environment, "plain", message)
    await eventually(lambda: bool(shared.seen.of("on_message", id="run:1")))
    await until_empty(shared.environment, "plain")
    assert shared.seen.of("on_message", id="run:1") == [
        {
            "function": "on_message",
            "body": "hello",
            "id": "run:1",
            "properties": {"attempt": 1, "pipeline": "digits"},
            "subject": "retry",
            "content_type": "application/json",
            "delivery_count": 1,
            "enqueued": True,
        }
    ]


@pytest.mark.usefixtures("client")
async def test_a_message_of_a_failed_function_is_delivered_again(shared: Any) -> None:
    message = ServiceBusMessage("x", message_id="fails", subject="fails once")
    await send(shared.environment, "plain", message)
    await eventually(lambda: len(shared.seen.of("on_message", id="fails")) == 2)
    counts = [note["delivery_count"] for note in shared.seen.of("on_message", id="fails")]
    assert counts == [1, 2]


@pytest.mark.usefixtures("client")
async def test_cardinality_many(shared: Any) -> None:
    bodies = [f"m{number}" for number in range(5)]

    def arrived() -> list[str]:
        ended = shared.seen.of("on_batch", state="ended")
        return sorted(body for note in ended for body in note["bodies"])

    await send(shared.environment, "batches", *(ServiceBusMessage(body) for body in bodies))
    await eventually(lambda: arrived() == bodies)
    assert len(shared.seen.of("on_batch", state="ended")) < len(bodies)


@pytest.mark.usefixtures("client")
async def test_batches_run_one_after_the_other(shared: Any) -> None:
    def notes(body: str) -> list[dict[str, Any]]:
        return [note for note in shared.seen.of("on_batch") if body in note["bodies"]]

    slow = ServiceBusMessage("slow", application_properties={"seconds": 0.5})
    await send(shared.environment, "batches", slow)
    await eventually(lambda: bool(notes("slow")))
    await send(shared.environment, "batches", ServiceBusMessage("next"))
    await eventually(lambda: len(notes("next")) == 2)
    of_both = [
        (note["bodies"], note["state"])
        for note in shared.seen.of("on_batch")
        if note["bodies"] in (["slow"], ["next"])
    ]
    assert of_both == [
        (["slow"], "began"),
        (["slow"], "ended"),
        (["next"], "began"),
        (["next"], "ended"),
    ]


async def test_output_bindings(shared: Any, client: aiohttp.ClientSession) -> None:
    for path, body in (("/api/send/plain", b"to the queue"), ("/api/send/news", b"to all")):
        async with client.post(path, data=body) as response:
            assert response.status == 200
    await eventually(
        lambda: bool(
            shared.seen.of("on_message", body="to the queue")
            and shared.seen.of("on_news", body="to all", state="ended")
        )
    )


@pytest.mark.usefixtures("client")
async def test_as_many_at_a_time_as_host_json_allows(shared: Any) -> None:
    messages = [
        ServiceBusMessage(f"crowd{number}", application_properties={"seconds": 0.3})
        for number in range(6)
    ]
    await send(shared.environment, "news", *messages)

    def crowd() -> list[dict[str, Any]]:
        return [n for n in shared.seen.of("on_news") if n["body"].startswith("crowd")]

    await eventually(lambda: len(crowd()) == 12)
    changes = [1 if note["state"] == "began" else -1 for note in crowd()]
    assert 2 <= max(itertools.accumulate(changes)) <= 4


async def test_the_broker_may_be_away_at_the_start_and_later(
    running_app: Any, seen: Any, environment: Environment
) -> None:
    async with running_app("service_bus", **settings(environment)):
        async with serve_service_bus(environment):
            await send(environment, "plain", ServiceBusMessage("first"))
            await eventually(lambda: len(seen.of("on_message")) == 1)
            await until_empty(environment, "plain")
        async with serve_service_bus(environment):
            await send(environment, "plain", ServiceBusMessage("second"))
            await eventually(lambda: len(seen.of("on_message")) == 2)
    assert [note["body"] for note in seen.of("on_message")] == ["first", "second"]


async def test_a_drain_lets_a_message_finish_and_completes_it(
    running_app: Any, seen: Any, environment: Environment
) -> None:
    names = settings(environment)
    message = ServiceBusMessage("slow", application_properties={"seconds": 0.5})
    async with serve_service_bus(environment):
        async with running_app("service_bus", **names):
            await send(environment, "news", message)
            await eventually(lambda: bool(seen.of("on_news")))
        assert [note["state"] for note in seen.of("on_news")] == ["began", "ended"]
        async with sender(environment) as client:
            receiver = client.get_subscription_receiver("news", "all")
            async with receiver:
                assert await receiver.peek_messages() == []
