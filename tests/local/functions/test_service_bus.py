from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from localazure.environment import Environment
from localazure.servicebus import serve as serve_service_bus

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


@pytest.fixture(autouse=True)
def config(environment: Environment) -> None:
    environment.service_bus_config.write_text(json.dumps(CONFIG))


@pytest.fixture
def settings(environment: Environment) -> dict[str, str]:
    return {"AzureWebJobsBus": environment.service_bus_connection_string, "QUEUE": "plain"}


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
    """Wait until what was received is completed, too."""
    async with (
        asyncio.timeout(30),
        sender(environment) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        while await receiver.peek_messages(1):
            await asyncio.sleep(0.02)


async def test_messages_arrive_whole_and_are_completed(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    message = ServiceBusMessage(
        "hello",
        message_id="run:1",
        subject="retry",
        content_type="application/json",
        application_properties={"attempt": 1, "pipeline": "digits"},
    )
    async with serve_service_bus(environment), running_app("service_bus", **settings):
        await send(environment, "plain", message)
        await seen.until(lambda: bool(seen.of("on_message")))
        await until_empty(environment, "plain")
    assert seen.of("on_message") == [
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


async def test_a_failure_abandons_and_it_comes_again(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    async with serve_service_bus(environment), running_app("service_bus", **settings):
        await send(environment, "plain", ServiceBusMessage("x", subject="fails once"))
        await seen.until(lambda: len(seen.of("on_message")) == 2)
    assert [note["delivery_count"] for note in seen.of("on_message")] == [1, 2]


async def test_cardinality_many(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    bodies = [f"m{number}" for number in range(5)]

    def arrived() -> list[str]:
        return sorted(body for note in seen.of("on_batch") for body in note["bodies"])

    async with serve_service_bus(environment):
        await send(environment, "batches", *(ServiceBusMessage(body) for body in bodies))
        async with running_app("service_bus", **settings):
            await seen.until(lambda: arrived() == bodies)
    assert len(seen.of("on_batch")) < len(bodies)


async def test_output_bindings(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    async with (
        serve_service_bus(environment),
        running_app("service_bus", **settings) as (_, client),
    ):
        for path, body in (("/api/send/plain", b"to the queue"), ("/api/send/news", b"to all")):
            async with client.post(path, data=body) as response:
                assert response.status == 200
        await seen.until(lambda: bool(seen.of("on_message") and len(seen.of("on_news")) == 2))
    assert seen.of("on_message")[0]["body"] == "to the queue"
    assert seen.of("on_news")[0]["body"] == "to all"


async def test_the_broker_may_be_away_at_the_start_and_later(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    async with running_app("service_bus", **settings):
        async with serve_service_bus(environment):
            await send(environment, "plain", ServiceBusMessage("first"))
            await seen.until(lambda: len(seen.of("on_message")) == 1)
            await until_empty(environment, "plain")
        async with serve_service_bus(environment):
            await send(environment, "plain", ServiceBusMessage("second"))
            await seen.until(lambda: len(seen.of("on_message")) == 2)
    assert [note["body"] for note in seen.of("on_message")] == ["first", "second"]


async def test_a_drain_lets_a_message_finish_and_completes_it(
    running_app: Any, seen: Any, environment: Environment, settings: dict[str, str]
) -> None:
    message = ServiceBusMessage("slow", application_properties={"seconds": 0.5})
    async with serve_service_bus(environment):
        async with running_app("service_bus", **settings):
            await send(environment, "news", message)
            await seen.until(lambda: bool(seen.of("on_news")))
        assert [note["state"] for note in seen.of("on_news")] == ["began", "ended"]
        async with sender(environment) as client:
            receiver = client.get_subscription_receiver("news", "all")
            async with receiver:
                assert await receiver.peek_messages() == []
