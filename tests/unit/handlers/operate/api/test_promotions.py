from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.notify.approvals import read_question
from handlers.operate.api.promotions import (
    cancel_promotion,
    list_promotions,
    promote_to_workspace,
)
from handlers.operate.api.requests import Answer
from handlers.platform import record_store
from handlers.training.promotions import keep_promotion, list_model_files, read_promotions
from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import Agreed, Question
from orchestrations.contracts.promotions import ListModelFiles, PromotionInput
from orchestrations.errors import PromotionRefused
from tests.fakes.azure_ml import World, make_world
from tests.fakes.durable_client import TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import PIPELINE

WORKSPACES = """\
workspaces:
- name: production
  subscription_id: 11111111-2222-3333-4444-555555555555
  resource_group: ml
  workspace: mlw
  storage: ProductionStorage
  approve: {by: [bob]}
"""
ID = f"promotion-{PIPELINE.name}_3_production"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "workspaces.yml").write_text(WORKSPACES)
    connection = "AccountName=production;AccountKey=a2V5"
    made = make_world({"PIPELINES_FOLDER": str(tmp_path), "ProductionStorage": connection})
    for version, tags in (("3", {"landfall.run": "digits-aa-1"}), ("4", {})):
        made.workspace.models.create_or_update(
            SimpleNamespace(name=PIPELINE.model.name, version=version, path="…", tags=tags)
        )
    return made


async def promote(
    world: World,
    hub: TaskHub,
    version: str = "3",
    *,
    route: Any = promote_to_workspace,
    **given: str,
) -> Answer:
    asked = {"by": "ada", "reason": "it is better", "to": "production"} | given
    body: Any = json.dumps(asked).encode()
    return await ask(
        route,
        world.clients,
        hub,
        PIPELINE,
        body=body,
        name=PIPELINE.name,
        version=version,
    )


async def test_a_repeated_request_gets_the_same_promotion(world: World) -> None:
    hub = TaskHub()
    for _ in range(2):
        answer = await promote(world, hub)
        assert (answer.status, answer.document["id"]) == (202, ID)
    given = PromotionInput.from_dict(hub.documents[ID]["input"])
    assert given.rule is not None
    assert (given.rule.before, given.rule.by) == ("promotion", ["bob"])
    shown = await ask(
        list_promotions, world.clients, hub, PIPELINE, name=PIPELINE.name, version="3"
    )
    (only,) = shown.document["promotions"]
    assert (only["id"], only["state"], only["has_ended"], only["broken"]) == (
        ID,
        "checking",
        False,
        False,
    )


@pytest.mark.parametrize(("state", "following"), [("refused", f"{ID}_1"), ("promoted", ID)])
async def test_after_a_refusal_there_is_a_new_one(world: World, state: str, following: str) -> None:
    hub = TaskHub()
    await promote(world, hub)
    (before,) = read_promotions(world.clients, PIPELINE.name, "3")
    keep_promotion(world.clients, before.model_copy(update={"state": state}))
    assert (await promote(world, hub)).document["id"] == following


async def test_what_cannot_be_promoted_is_refused_with_the_reason(world: World) -> None:
    hub = TaskHub()
    known = "workspaces.yml declares no workspace 'prod'; it declares production"
    check_problem(await promote(world, hub, to="prod"), 409, "no-such-workspace", known)
    check_problem(await promote(world, hub, "4"), 409, "not-promotable", "did not train it")
    check_problem(await promote(world, hub, "5"), 404, "unknown-model")


async def test_a_cancelled_promotion_is_refused_at_its_next_step(world: World) -> None:
    hub = TaskHub()
    missing = await promote(world, hub, route=cancel_promotion)
    check_problem(missing, 404, "unknown-promotion", "digits:3 was not promoted")
    await promote(world, hub)
    answer = await promote(world, hub, route=cancel_promotion, reason="wrong workspace")
    assert (answer.status, answer.document["id"]) == (202, ID)
    assert hub.raised == [(ID, "wake_up")]
    (status,) = read_promotions(world.clients, PIPELINE.name, "3")
    with pytest.raises(PromotionRefused, match="cancelled by ada: wrong workspace"):
        list_model_files(world.clients, ListModelFiles(promotion=status))
    keep_promotion(world.clients, status.model_copy(update={"state": "promoted"}))
    ended = await promote(world, hub, route=cancel_promotion)
    check_problem(ended, 409, "promotion-has-ended", "has ended as promoted")


async def test_the_question_about_a_refused_promotion_is_void(world: World) -> None:
    await promote(world, TaskHub())
    (status,) = read_promotions(world.clients, PIPELINE.name, "3")
    agreed = Agreed(
        before="promotion", pipeline=PIPELINE.name, model="digits:3", run=status.run, promotion=ID
    )
    rule = Approval(before="promotion", by=["bob"])
    asked = Question(agreed=agreed, hash=agreed.hash, rule=rule, asked_at=status.asked_at)
    record_store.create(world.clients.records, f"approvals/{agreed.id}.json", asked.to_dict())
    refused = status.model_copy(update={"state": "refused", "why": "its files were written again"})
    keep_promotion(world.clients, refused)
    question = read_question(world.clients, agreed.id)
    assert question is not None
    assert question.answer is not None
    assert (question.answer.verb, question.answer.reason) == ("void", refused.why)
