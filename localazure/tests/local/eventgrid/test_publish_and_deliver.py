"""Event Grid driven by azure-eventgrid's clients, with a webhook as receiver."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from azure.core.credentials import AzureKeyCredential, AzureSasCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.core.messaging import CloudEvent
from azure.eventgrid import EventGridEvent, EventGridPublisherClient, generate_sas
from azure.eventgrid.aio import EventGridPublisherClient as AsyncPublisherClient

from harness.waiting import eventually
from localazure.eventgrid.service import serve
from localazure.runtime.environment import Environment

CLOUD_TOPIC = {"name": "clouds", "inputSchema": "CloudEventSchemaV1_0"}


def event(subject: str = "/a", **data: Any) -> EventGridEvent:
    return EventGridEvent(subject=subject, event_type="Test.Happened", data=data, data_version="1")


def publisher(environment: Environment, topic: str = "azure-ml") -> AsyncPublisherClient:
    key = AzureKeyCredential(environment.event_grid_keys(topic)[0])
    return AsyncPublisherClient(environment.topic_endpoint(topic), key)


async def test_event_reaches_a_webhook_after_the_handshake(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    as_cloud_events = {"eventDeliverySchema": "CloudEventSchemaV1_0"}
    configure(
        webhook("hook", "azure-ml", receiver.url),
        webhook("cloud", "azure-ml", receiver.url, **as_cloud_events),
    )
    async with serve(environment), publisher(environment) as client:
        sent = event(answer=42)
        await client.send([sent])
        await receiver.wait_for(lambda: len(receiver.requests) == 2)
    assert receiver.handshakes == 2
    (_, cloud), (headers, body) = sorted(
        receiver.requests, key=lambda request: request[0]["aeg-subscription-name"]
    )
    assert cloud["specversion"] == "1.0"
    assert (cloud["id"], cloud["type"], cloud["source"]) == (
        str(sent.id),
        "Test.Happened",
        "azure-ml",
    )
    assert headers["aeg-event-type"] == "Notification"
    assert headers["aeg-subscription-name"] == "HOOK"
    assert headers["aeg-delivery-count"] == "0"
    assert headers["aeg-data-version"] == "1"
    assert headers["aeg-metadata-version"] == "1"
    assert [body[0][name] for name in ("id", "subject", "eventType", "topic", "data")] == [
        str(sent.id),
        "/a",
        "Test.Happened",
        "azure-ml",
        {"answer": 42},
    ]


async def test_sync_client_and_sas_token(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    configure(webhook("hook", "azure-ml", receiver.url))
    endpoint = environment.topic_endpoint("azure-ml")
    key, other = environment.event_grid_keys("azure-ml")
    token = generate_sas(endpoint, other, datetime.now(UTC) + timedelta(hours=1))
    expired = generate_sas(endpoint, key, datetime.now(UTC) - timedelta(hours=1))

    def send(credential: AzureKeyCredential | AzureSasCredential) -> None:
        with EventGridPublisherClient(endpoint, credential) as client:
            client.send(event())

    async with serve(environment):
        await asyncio.to_thread(send, AzureSasCredential(token))
        await receiver.wait_for(lambda: len(receiver.requests) == 1)
        with pytest.raises(ClientAuthenticationError, match="expired"):
            await asyncio.to_thread(send, AzureSasCredential(expired))
        # The key of another topic, and the one that all topics of an earlier version had.
        for wrong in (environment.event_grid_keys("storage")[0], environment.keys.event_grid):
            with pytest.raises(ClientAuthenticationError):
                await asyncio.to_thread(send, AzureKeyCredential(wrong))
    assert len(receiver.requests) == 1


async def test_cloud_events_go_out_one_by_one_as_objects(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    configure(webhook("hook", "clouds", receiver.url), topics=(CLOUD_TOPIC,))
    async with serve(environment), publisher(environment, "clouds") as client:
        await client.send(
            [
                CloudEvent(source="/s", type="T", data={"n": 1}, extensions={"tenant": "x"}),
                CloudEvent(source="/s", type="T", data=b"\x00\x01"),
            ]
        )
        await receiver.wait_for(lambda: len(receiver.requests) == 2)
    assert receiver.handshakes == 1
    for headers, body in receiver.requests:
        assert headers["Content-Type"].startswith("application/cloudevents+json")
        assert CloudEvent.from_dict(body).source == "/s"
    assert {body.get("tenant") for _, body in receiver.requests} == {"x", None}


async def test_events_are_batched_if_the_subscription_allows_it(
    environment: Environment, configure: Any, webhook: Any, new_receiver: Any
) -> None:
    receiver = new_receiver()
    configure(
        webhook("hook", "clouds", receiver.url, {"maxEventsPerBatch": 4}), topics=(CLOUD_TOPIC,)
    )
    async with serve(environment), publisher(environment, "clouds") as client:
        await client.send([CloudEvent(source="/s", type="T", data=n) for n in range(10)])
        async with receiver.listening():
            await receiver.wait_for(lambda: len(receiver.events) == 10)
        await client.send(CloudEvent(source="/s", type="T", data=10))
        async with receiver.listening():
            await receiver.wait_for(lambda: len(receiver.events) == 11)
    assert [len(body) for _, body in receiver.requests] == [4, 4, 2, 1]
    # While the receiver does not listen, no attempt is counted.
    assert {headers["aeg-delivery-count"] for headers, _ in receiver.requests} == {"0"}
    assert "cloudevents-batch" in receiver.requests[0][0]["Content-Type"]


async def test_subscriptions_get_the_events_that_match_their_filters(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    configure(
        webhook("all", "azure-ml", receiver.url),
        webhook("some", "azure-ml", receiver.url, filter={"subjectBeginsWith": "/B"}),
        webhook("none", "azure-ml", receiver.url, filter={"includedEventTypes": ["Other"]}),
        webhook("elsewhere", "storage", receiver.url),
    )
    async with serve(environment), publisher(environment) as client:
        await client.send([event("/a"), event("/b/1")])
        await receiver.wait_for(lambda: len(receiver.requests) == 3)
    got = sorted((h["aeg-subscription-name"], b[0]["subject"]) for h, b in receiver.requests)
    assert got == [("ALL", "/a"), ("ALL", "/b/1"), ("SOME", "/b/1")]


async def test_a_webhook_that_does_not_confirm_gets_no_events(
    environment: Environment, configure: Any, webhook: Any, receiver: Any
) -> None:
    receiver.agrees = False
    configure(webhook("hook", "azure-ml", receiver.url))
    async with serve(environment), publisher(environment) as client:
        await client.send(event())
        await eventually(lambda: receiver.handshakes >= 3)
        assert receiver.requests == []
        receiver.agrees = True
        await receiver.wait_for(lambda: len(receiver.requests) == 1)


@pytest.mark.parametrize(
    ("query", "body", "content_type", "status", "words"),
    [
        ("", "[]", "application/json", 400, "api-version"),
        ("?api-version=2018-01-01", "[", "application/json", 400, "JSON"),
        ("?api-version=2018-01-01", "[" * 100_000, "application/json", 400, "nested too deeply"),
        ("?api-version=2018-01-01", "{}", "application/json", 400, "array"),
        ("?api-version=2018-01-01", '[{"id": "1"}]', "application/json", 400, "subject"),
        ("?api-version=2018-01-01", "[]", "application/cloudevents+json", 400, "EventGridSchema"),
        ("?api-version=2018-01-01", "[" + " " * 2**20 + "]", "application/json", 413, "bytes"),
    ],
)
async def test_bad_requests_get_the_reason(
    environment: Environment, query: str, body: str, content_type: str, status: int, words: str
) -> None:
    url = environment.topic_endpoint("azure-ml") + query
    key, _ = environment.event_grid_keys("azure-ml")
    headers = {"aeg-sas-key": key, "Content-Type": content_type}
    async with (
        serve(environment),
        aiohttp.ClientSession() as session,
        session.post(url, data=io.BytesIO(body.encode()), headers=headers) as response,
    ):
        assert response.status == status
        assert words in json.loads(await response.text())["error"]["message"]


async def test_unknown_topic_and_foreign_topic_field_are_refused(
    environment: Environment, configure: Any
) -> None:
    configure(topics=({"name": "custom"},))
    async with serve(environment):
        async with publisher(environment, "nowhere") as client:
            with pytest.raises(HttpResponseError, match="Resource not found"):
                await client.send(event())
        async with publisher(environment, "custom") as client:
            foreign = event()
            foreign.topic = "/else"
            with pytest.raises(HttpResponseError, match="event 0: topic"):
                await client.send(foreign)


async def test_subscription_put_at_run_time_outlives_a_restart(
    environment: Environment, webhook: Callable[..., dict[str, Any]], receiver: Any
) -> None:
    base = environment.topic_endpoint("x").partition("/topics/")[0]
    headers = {"aeg-sas-key": environment.keys.event_grid}
    body = webhook("late", "azure-ml", receiver.url)
    async with aiohttp.ClientSession(base, headers=headers) as session:
        async with serve(environment):
            async with session.put("/subscriptions/late", json=body) as response:
                assert response.status == 200, await response.text()
            async with session.put("/subscriptions/bad", json={"topic": "nope"}) as response:
                assert response.status == 400
            async with session.get("/subscriptions", headers={"aeg-sas-key": "no"}) as response:
                assert response.status == 401
        async with serve(environment), publisher(environment) as client:
            await client.send(event())
            await receiver.wait_for(lambda: len(receiver.requests) == 1)

            async def counts() -> dict[str, int] | None:
                async with session.get("/subscriptions") as response:
                    (found,) = (await response.json())["value"]
                return found["counts"] if found["counts"]["delivered"] else None

            assert await eventually(counts) == {
                "matched": 1,
                "delivered": 1,
                "failed": 0,
                "deadLettered": 0,
                "dropped": 0,
                "waiting": 0,
            }
            async with session.delete("/subscriptions/late") as response:
                assert response.status == 200
            async with session.get("/subscriptions/late") as response:
                assert response.status == 404
    assert receiver.handshakes == 1
