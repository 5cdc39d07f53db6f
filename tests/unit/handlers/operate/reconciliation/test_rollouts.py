from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from handlers.operate.reconciliation import rollouts
from handlers.operate.reconciliation.rollouts import close_rollout
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from handlers.rollout.endpoint_claims import claim_endpoint, holder_of, holders, register
from orchestrations.contracts.rollouts import ClaimEndpoint
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub

NOW = datetime(2026, 11, 22, tzinfo=UTC)
ROLLOUT = "rollout-live-1"
PENDING = "rollout-live-2_1"


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The list of sent alerts."""
    sent: list[Message] = []

    def send(_: Clients, alert: Message) -> None:
        sent.append(alert)

    monkeypatch.setattr(rollouts, "publish_alert", send)
    return sent


def hold(world: World) -> None:
    claim_endpoint(world.clients, ClaimEndpoint(rollout=ROLLOUT, endpoint="live", version=1))


async def close(world: World, hub: Any, rollout: str = ROLLOUT) -> bool:
    return await close_rollout(world.clients, hub, "live", rollout, now=NOW)


async def test_a_live_rollout_keeps_its_endpoint(world: World, alerts: list[Message]) -> None:
    hold(world)
    hub = TaskHub()
    hub.add(ROLLOUT, "rollout")
    assert not await close(world, hub)
    assert holder_of(world.clients, "live") == ROLLOUT
    assert alerts == []


@pytest.mark.parametrize("status", ["Failed", "Terminated"])
async def test_a_rollout_that_broke_is_told_once_and_its_endpoint_is_free(
    world: World, alerts: list[Message], status: str
) -> None:
    hold(world)
    hub = TaskHub()
    hub.add(ROLLOUT, "rollout", status)
    assert await close(world, hub)
    assert holder_of(world.clients, "live") is None
    (alert,) = alerts
    assert alert.message_id == f"rollout-broken:{ROLLOUT}"
    assert "landfall deploy" in json.loads(alert.body)["data"]["message"]
    assert list(holders(world.clients)) == []


async def test_a_rollout_that_ended_between_two_reads_is_no_trouble(
    world: World, alerts: list[Message]
) -> None:
    hold(world)
    hub = TaskHub()
    hub.add(ROLLOUT, "rollout", "Completed")
    assert await close(world, hub)
    assert alerts == []


async def test_others_do_not_wait_for_a_persons_rollout_that_broke(
    world: World, alerts: list[Message]
) -> None:
    register(world.clients, "live", PENDING, version=2, attempt=1)
    hub = TaskHub()
    assert not await close(world, hub, PENDING), "its message is about to start it"
    hub.add(PENDING, "rollout", "Terminated")
    assert await close(world, hub, PENDING)
    assert len(alerts) == 1
    later = ClaimEndpoint(rollout="rollout-live-3", endpoint="live", version=3)
    assert claim_endpoint(world.clients, later).granted
