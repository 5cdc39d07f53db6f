from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from handlers.operate.reconciliation.promotions import check_promotions
from handlers.operate.reconciliation.rounds import Round
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from handlers.training import promotions as activities
from handlers.training.promotions import keep_promotion, open_promotions, read_promotions
from orchestrations.contracts.promotions import PromotionInput
from tests.fakes.azure_ml import World, make_world
from tests.fakes.durable_client import TaskHub
from tests.unit.handlers.operate.api.test_promotions import WORKSPACES
from tests.unit.orchestrations.training.test_promotion import STATUS as ASKED

NOW = datetime(2026, 11, 29, tzinfo=UTC)


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "workspaces.yml").write_text(WORKSPACES)
    made = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    keep_promotion(made.clients, ASKED, is_new=True)
    return made


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """The list of sent alerts."""
    sent: list[Message] = []

    def send(_: Clients, __: str, alert: Message) -> None:
        sent.append(alert)

    monkeypatch.setattr(activities, "send_in_background", send)
    return sent


async def check(world: World, hub: TaskHub) -> list[str]:
    current = Round(world.clients, hub, NOW, lambda: 0.0, 1.0)  # pyright: ignore[reportArgumentType] - the test's own client
    await check_promotions(current)
    assert current.failed == {}
    return current.summary.promotions_repaired


async def test_one_that_was_only_recorded_is_started_with_its_rule(
    world: World, alerts: list[Message]
) -> None:
    hub = TaskHub()
    assert await check(world, hub) == [ASKED.id]
    given = PromotionInput.from_dict(hub.documents[ASKED.id]["input"])
    assert given.status == ASKED
    assert given.rule is not None
    assert given.rule.by == ["bob"]
    assert await check(world, hub) == []
    assert alerts == []


@pytest.mark.parametrize("status", ["Failed", "Terminated"])
async def test_one_that_broke_is_refused_and_told_once(
    world: World, alerts: list[Message], status: str
) -> None:
    hub = TaskHub()
    hub.add(ASKED.id, "promotion", status)
    assert await check(world, hub) == [ASKED.id]
    assert await check(world, hub) == []
    (record,) = read_promotions(world.clients, "digits", "3")
    assert record.state == "refused"
    assert "promote the version again" in str(record.why)
    (alert,) = alerts
    assert alert.message_id == f"promotion-ended:{ASKED.id}"
    assert json.loads(alert.body)["data"]["message"].endswith("promote the version again")


async def test_one_that_has_ended_is_not_looked_at(world: World) -> None:
    keep_promotion(world.clients, ASKED.model_copy(update={"state": "promoted"}))
    assert list(open_promotions(world.clients)) == []


async def test_a_workspace_that_is_not_declared_any_more_is_a_fault(
    world: World, tmp_path: Path
) -> None:
    (tmp_path / "workspaces.yml").write_text("workspaces: []\n")
    current = Round(world.clients, TaskHub(), NOW, lambda: 0.0, 1.0)  # pyright: ignore[reportArgumentType] - the test's own client
    await check_promotions(current)
    assert "declares no workspace 'production'" in current.failed[f"promotion {ASKED.id}"]
