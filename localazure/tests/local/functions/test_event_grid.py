from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest_asyncio

from harness.waiting import eventually
from localazure.eventgrid.service import serve as serve_event_grid
from localazure.runtime.environment import Environment

URL = "/runtime/webhooks/EventGrid"
NOTIFICATION = {"aeg-event-type": "Notification"}


def event(number: int, subject: str = "s") -> dict[str, Any]:
    return {
        "id": str(number),
        "topic": "t",
        "subject": subject,
        "eventType": "Landed",
        "eventTime": "2026-06-26T18:41:00.9584103Z",
        "data": {"n": number},
        "dataVersion": "1",
    }


def cloud_event(number: int) -> dict[str, Any]:
    return {"specversion": "1.0", "id": str(number), "source": "here", "type": "Landed"}


async def post(
    client: aiohttp.ClientSession,
    function: str,
    body: object,
    headers: dict[str, str] = NOTIFICATION,
    code: str = "system-key",
) -> tuple[int, str]:
    parameters = {"functionName": function, "code": code}
    async with client.post(URL, params=parameters, headers=headers, json=body) as response:
        return response.status, await response.text()


@pytest_asyncio.fixture
async def client(running_app: Any) -> AsyncGenerator[aiohttp.ClientSession]:
    """A client of the running app."""
    async with running_app("events") as (_, client):
        yield client


async def test_each_event_is_an_invocation_of_its_own(
    client: aiohttp.ClientSession, seen: Any
) -> None:
    for function, body in (
        ("On_Event", [event(1), event(2)]),
        ("on_event", event(3)),
        ("on_cloud_event", cloud_event(4)),
        ("on_cloud_event", [cloud_event(5), cloud_event(6)]),
        ("on_batch", [event(7), event(8)]),
    ):
        assert (await post(client, function, body))[0] == 202
    assert sorted(note["id"] for note in seen.of("on_event")) == ["1", "2", "3"]
    assert sorted(note["id"] for note in seen.of("on_cloud_event")) == ["4", "5", "6"]
    assert seen.of("on_event", id="1") == [
        {"function": "on_event", "id": "1", "type": "Landed", "data": {"n": 1}}
    ]
    assert seen.of("on_batch") == [{"function": "on_batch", "ids": ["7", "8"]}]


async def test_one_failure_fails_the_request_but_not_the_other_events(
    client: aiohttp.ClientSession, seen: Any
) -> None:
    body = [event(1), event(2, "poison"), event(3)]
    assert (await post(client, "on_event", body))[0] == 500
    assert sorted(note["id"] for note in seen.of("on_event")) == ["1", "3"]


async def test_handshakes(client: aiohttp.ClientSession, seen: Any) -> None:
    validation = {
        **event(1),
        "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": "512d38b6", "validationUrl": "https://example.com"},
    }
    headers = {"aeg-event-type": "SubscriptionValidation"}
    answer = await post(client, "on_event", [validation], headers)
    assert answer == (200, '{"validationResponse": "512d38b6"}')
    assert (await post(client, "on_event", [event(1)], headers))[0] == 400
    # The handshake of CloudEvents:
    parameters = {"functionName": "on_event", "code": "system-key"}
    headers = {"WebHook-Request-Origin": "eventgrid.azure.net"}
    async with client.options(URL, params=parameters, headers=headers) as response:
        assert response.status == 200
        assert response.headers["WebHook-Allowed-Origin"] == "eventgrid.azure.net"
    async with client.options(URL, params=parameters) as response:
        assert response.status == 400
    assert seen.all() == []


async def test_refusals(client: aiohttp.ClientSession, seen: Any) -> None:
    for function, body, headers, code, status in (
        ("nothing", [event(1)], NOTIFICATION, "system-key", 404),
        ("on_event", [event(1)], NOTIFICATION, "host-key", 401),
        ("on_event", [event(1)], NOTIFICATION, "", 401),
        ("on_event", [event(1)], {}, "system-key", 400),
        ("on_event", ["text"], NOTIFICATION, "system-key", 400),
        ("on_event", [event(1)], {"aeg-event-type": "Unsubscribe"}, "system-key", 202),
    ):
        assert (await post(client, function, body, headers, code))[0] == status
    assert seen.all() == []


async def test_a_request_to_the_admin_api_runs_the_function(
    client: aiohttp.ClientSession, seen: Any
) -> None:
    key, given = {"x-functions-key": "master-key"}, {"input": json.dumps(event(9))}
    async with client.post("/admin/functions/on_event", headers=key, json=given) as response:
        assert response.status == 202
    await eventually(lambda: seen.of("on_event", id="9"))


async def test_an_output_binding_publishes_and_the_subscription_comes_back(
    running_app: Any, seen: Any, environment: Environment
) -> None:
    """The event goes through the local topic, including handshake and delivery."""
    settings = {
        "TopicEndpoint": environment.topic_endpoint("landfall"),
        "TopicKey": environment.event_grid_keys("landfall")[0],
    }
    async with running_app("events", **settings) as (host, client):
        webhook = f"{host.base_url}{URL}?functionName=on_event&code=system-key"
        subscription = {
            "name": "to-the-app",
            "topic": "landfall",
            "properties": {
                "destination": {"endpointType": "WebHook", "properties": {"endpointUrl": webhook}}
            },
        }
        document = {"topics": [{"name": "landfall"}], "eventSubscriptions": [subscription]}
        environment.event_grid_config.write_text(json.dumps(document))
        async with serve_event_grid(environment):
            async with client.get("/api/publish") as response:
                assert response.status == 200
            await eventually(lambda: seen.of("on_event"))
    assert seen.all() == [
        {"function": "on_event", "id": "from-output", "type": "Published", "data": {"n": 1}}
    ]
