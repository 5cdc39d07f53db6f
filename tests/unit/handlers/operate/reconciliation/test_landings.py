from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.operate.reconciliation import landings
from handlers.operate.reconciliation.landings import RESTARTS, close_request, is_broken_request
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from orchestrations.contracts.landing import LandingRequest
from orchestrations.names import request_instance
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import PIPELINE

NOW = datetime(2026, 11, 22, tzinfo=UTC)
REQUEST = request_instance("digits", "a-key")
DOCUMENT = LandingRequest(pipeline=PIPELINE.name, opened_by="request", settled=True).to_dict()


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The list of sent alerts."""
    sent: list[Message] = []

    def send(_: Clients, alert: Message) -> None:
        sent.append(alert)

    monkeypatch.setattr(landings, "publish_alert", send)
    return sent


async def close(world: World, hub: Any) -> str | None:
    instance = await hub.get_status(REQUEST)
    assert is_broken_request(instance)
    return await close_request(world.clients, hub, instance, now=NOW)


async def test_a_request_whose_landing_failed_is_started_again_and_then_alerted_once(
    world: World, alerts: list[Message]
) -> None:
    hub = TaskHub()
    closed: list[str | None] = []
    for _ in range(RESTARTS + 2):
        hub.add(REQUEST, "landing", "Failed", document=DOCUMENT, output="storage is out of reach")
        closed.append(await close(world, hub))
        assert hub.documents[REQUEST]["input"] == DOCUMENT
    assert closed == ["started again"] * RESTARTS + ["alerted", None]
    assert hub.started == [REQUEST] * RESTARTS
    (alert,) = alerts
    assert alert.message_id == f"request-failed:{REQUEST}"
    assert alert.properties["severity"] == "error"
    assert "storage is out of reach" in json.loads(alert.body)["data"]["message"]


async def test_a_request_of_a_newer_release_is_started_again_as_it_is(
    world: World, alerts: list[Message]
) -> None:
    hub = TaskHub()
    hub.add(REQUEST, "landing", "Failed", document=DOCUMENT | {"added_since": "x"})
    assert await close(world, hub) == "started again"
    assert hub.documents[REQUEST]["input"] == DOCUMENT | {"added_since": "x"}
    assert alerts == []


async def test_what_a_person_ended_is_alerted_at_once(world: World, alerts: list[Message]) -> None:
    hub = TaskHub()
    hub.add(REQUEST, "landing", "Terminated", document=DOCUMENT)
    assert await close(world, hub) == "alerted"
    assert await close(world, hub) is None
    assert hub.started == []
    assert len(alerts) == 1


@pytest.mark.parametrize(
    ("instance", "name", "status"),
    [
        ("landing-digits", "landing", "Failed"),
        (REQUEST, "landing", "Running"),
        (REQUEST, "landing", "Completed"),
        ("request-0123456789abcdef-1", "retraining", "Failed"),
    ],
)
async def test_other_instances_are_no_broken_requests(
    instance: str, name: str, status: str
) -> None:
    hub = TaskHub()
    hub.add(instance, name, status)
    assert not is_broken_request(await hub.get_status(instance))
