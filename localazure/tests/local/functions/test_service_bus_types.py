"""Functions that take Service Bus messages of the SDK's type, and settle them by hand.

The extension is in no environment of `make setup`: it needs protobuf before 7. `make
conformance-worker` runs these tests where it is.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from harness.waiting import eventually
from localazure.functions.errors import AppLoadError
from localazure.servicebus.service import serve as serve_service_bus

pytest.importorskip("azurefunctions.extensions.bindings.servicebus")
pytestmark = pytest.mark.asyncio(loop_scope="module")

QUEUES = ("plain", "manual", "automatic")
CONFIG = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "test",
                "Queues": [{"Name": name} for name in QUEUES],
                "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all"}]}],
            }
        ]
    }
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def app(shared: Any) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of the app, which runs with the broker."""
    environment = shared.environment
    environment.service_bus_config.write_text(json.dumps(CONFIG))
    connection = environment.service_bus_connection_string
    before = sys.argv
    async with (
        serve_service_bus(environment),
        shared.running_app("service_bus_types", AzureWebJobsBus=connection) as (_, client),
    ):
        yield client
    assert sys.argv == before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bus(shared: Any, app: aiohttp.ClientSession) -> AsyncGenerator[ServiceBusClient]:
    """A client of the broker."""
    del app
    connection = shared.environment.service_bus_connection_string
    async with ServiceBusClient.from_connection_string(connection) as client:
        yield client


async def send(bus: ServiceBusClient, entity: str, *messages: ServiceBusMessage) -> None:
    get = bus.get_topic_sender if entity == "news" else bus.get_queue_sender
    async with get(entity) as sender:
        await sender.send_messages(list(messages))


async def peek(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    return await receiver.peek_messages(1, sequence_number=1)


async def by_hand(shared: Any, bus: ServiceBusClient, how: str, *, deliveries: int = 1) -> str:
    """Have the function settle a message; return how it refuses to do so again."""
    await send(bus, "manual", ServiceBusMessage("x", subject=how))
    await eventually(lambda: len(shared.seen.of("by_hand", subject=how)) == deliveries)
    return "".join(note["refusal"] for note in shared.seen.of("by_hand", subject=how))


@contextlib.asynccontextmanager
async def only_message(
    bus: ServiceBusClient, **options: Any
) -> AsyncGenerator[tuple[ServiceBusReceiver, ServiceBusReceivedMessage]]:
    """The only message of the queue; it is completed."""
    async with bus.get_queue_receiver("manual", **options) as receiver:
        (peeked,) = await receiver.peek_messages(10, sequence_number=1)
        yield receiver, peeked


@pytest.mark.parametrize(("entity", "function"), [("plain", "on_message"), ("news", "on_batch")])
async def test_messages_arrive_whole_and_are_completed(
    shared: Any, bus: ServiceBusClient, entity: str, function: str
) -> None:
    given = {"text": "a", "number": -1, "fraction": 0.5, "yes": True}
    message = ServiceBusMessage(
        "hello",
        message_id="run:1",
        subject="retry",
        content_type="application/json",
        correlation_id="c",
        to="t",
        application_properties={**given},
    )
    await send(bus, entity, message)
    await eventually(lambda: bool(shared.seen.of(function)))
    (seen,) = shared.seen.of(function)
    assert len(seen.pop("lock_token")) == 36
    assert all(time.startswith("20") for time in seen.pop("times"))
    assert seen == {
        "function": function,
        "body": "hello",
        "id": "run:1",
        "subject": "retry",
        "content_type": "application/json",
        "correlation_id": "c",
        "to": "t",
        "properties": given,
        "sequence_number": 1,
    }
    get = bus.get_subscription_receiver if entity == "news" else bus.get_queue_receiver
    async with get(*(["news", "all"] if entity == "news" else ["plain"])) as receiver:

        async def is_empty() -> bool:
            return not await peek(receiver)

        await eventually(is_empty)


async def test_a_completed_message_is_gone(shared: Any, bus: ServiceBusClient) -> None:
    assert "LockToken" in await by_hand(shared, bus, "complete")
    async with bus.get_queue_receiver("manual") as receiver:
        assert await peek(receiver) == []


async def test_a_deferred_message_waits(shared: Any, bus: ServiceBusClient) -> None:
    assert "LockToken" in await by_hand(shared, bus, "defer")
    async with only_message(bus) as (receiver, peeked):
        assert peeked.sequence_number
        (deferred,) = await receiver.receive_deferred_messages(peeked.sequence_number)
        await receiver.complete_message(deferred)


async def test_a_dead_letter_has_its_reason(shared: Any, bus: ServiceBusClient) -> None:
    await by_hand(shared, bus, "deadletter")
    async with only_message(bus, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as (_, peeked):
        told = (peeked.dead_letter_reason, peeked.dead_letter_error_description)
        assert told == ("as told", "by a test")


async def test_an_abandoned_message_comes_again_and_one_not_settled_stays(
    shared: Any, bus: ServiceBusClient
) -> None:
    assert "LockToken" in await by_hand(shared, bus, "abandon", deliveries=2)
    async with only_message(bus) as (_, peeked):  # the function has not settled it again
        assert peeked.delivery_count == 1


async def test_a_coroutine_settles_and_its_failure_abandons(
    shared: Any, bus: ServiceBusClient
) -> None:
    await send(bus, "automatic", ServiceBusMessage("x"))
    await eventually(lambda: len(shared.seen.of("in_a_coroutine")) == 2)
    async with bus.get_queue_receiver("automatic") as receiver:

        async def is_empty() -> bool:
            return not await peek(receiver)

        await eventually(is_empty)


async def test_there_are_no_sessions(app: aiohttp.ClientSession) -> None:
    async with app.get("/api/session") as response:
        assert "SessionId s1 not found" in await response.text()


async def test_another_class_of_the_extension_is_refused(run_text: Any) -> None:
    body = """
from azurefunctions.extensions.bindings import servicebus

@app.queue_trigger(arg_name="message", queue_name="q", connection="AzureWebJobsStorage")
def f(message: servicebus.ServiceBusReceivedMessage) -> None: ...
"""
    with pytest.raises(AppLoadError, match="queueTrigger binding, of which there is no Service"):
        async with run_text(body):
            pass
