"""The list of rollouts: order, pages, and current or final states."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.operate.api.rollouts import RolloutList, list_rollouts, promote_rollout
from handlers.platform.rollout_index import record_outcome
from handlers.rollout.observing import read_directions
from handlers.rollout.requests import handle_rollout
from orchestrations.configuration.deploy import OnlineDeploy
from orchestrations.contracts.rollouts import (
    ChampionChange,
    ReadDirections,
    RolloutRequest,
    RolloutStatus,
    Verb,
)
from orchestrations.contracts.runs import Model
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import PIPELINE

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
STEPS = [{"mirror": 20, "bake_minutes": 1}, {"traffic": 100, "bake_minutes": 1}]


def request_rollout(
    world: World, hub: Any, pipeline: str, version: str, *, minutes: int, **more: Any
) -> str:
    """Request a rollout, at a time in minutes after noon; return its id."""
    deploy = OnlineDeploy.model_validate(
        {"endpoint": f"{pipeline}-live", "instance_type": "Standard_DS3_v2", "steps": STEPS}
    )
    request = RolloutRequest(
        pipeline=PIPELINE.model_copy(update={"name": pipeline, "deploy": deploy}),
        model=Model(name=pipeline, version=version, path="azureml://…"),
        run=f"run-{pipeline}-{version}",
        **more,
    )
    now = NOW + timedelta(minutes=minutes)
    found = asyncio.run(handle_rollout(world.clients, hub, request.model_dump_json(), now=now))
    assert found is not None
    return found


def listed(world: World, hub: TaskHub, **parameters: str) -> RolloutList:
    answer = asyncio.run(ask(list_rollouts, world.clients, hub, query=parameters))
    assert answer.status == 200
    return RolloutList.model_validate(answer.document)


def test_rollouts_are_listed_newest_first_and_by_pipeline_and_page(world: World) -> None:
    hub = TaskHub()
    first = request_rollout(world, hub, "digits", "1", minutes=0)
    other = request_rollout(world, hub, "shapes", "1", minutes=1)
    last = request_rollout(world, hub, "digits", "2", minutes=2)
    assert [each.id for each in listed(world, hub).rollouts] == [last, other, first]
    of_digits = listed(world, hub, pipeline="digits", limit="1")
    assert [each.id for each in of_digits.rollouts] == [last]
    assert of_digits.next is not None
    _, _, after = of_digits.next.partition("after=")
    rest = listed(world, hub, pipeline="digits", limit="1", after=after)
    assert [each.id for each in rest.rollouts] == [first]
    assert rest.next is None


@pytest.mark.parametrize(("verb", "shown"), [("rollback", "2"), ("promote", None)])
def test_a_rollout_that_takes_a_version_out_of_service_says_which(
    world: World, verb: Verb, shown: str | None
) -> None:
    hub = TaskHub()
    change = ChampionChange(verb=verb, version="2", at=NOW, by="ada", reason="wrong answers")
    rollout = request_rollout(world, hub, "digits", "1", minutes=0, attempt=1, champion=change)
    (asked,) = listed(world, hub).rollouts
    # Its own status, whose history must not change, does not say it.
    status = asked.model_copy(update={"state": "live", "rolls_back": None})
    shown_there = status.model_dump(mode="json", exclude={"broken", "created_at"})
    hub.add(rollout, "rollout", custom_status=shown_there)
    (live,) = listed(world, hub).rollouts
    assert (asked.rolls_back, live.state, live.rolls_back) == (shown, "live", shown)


def test_a_message_that_is_delivered_twice_is_one_rollout(world: World) -> None:
    hub = TaskHub()
    request_rollout(world, hub, "digits", "1", minutes=0)
    request_rollout(world, hub, "digits", "1", minutes=5)
    (only,) = listed(world, hub).rollouts
    assert (only.state, only.steps, only.created_at) == ("waiting", 2, NOW)


def test_a_rollout_is_shown_as_it_is_now_or_as_it_ended(world: World) -> None:
    hub = TaskHub()
    rollout = request_rollout(world, hub, "digits", "1", minutes=0)
    (asked,) = listed(world, hub).rollouts
    now: dict[str, Any] = asked.model_dump(exclude={"broken", "created_at"}, mode="json")
    baking = RolloutStatus.from_dict({**now, "state": "baking", "mirror": {"model-1": 20}})
    hub.add(rollout, "rollout", custom_status=baking.to_dict())
    (shown,) = listed(world, hub).rollouts
    assert (shown.state, shown.mirror, shown.broken) == ("baking", {"model-1": 20}, False)
    hub.add(rollout, "rollout", "Terminated", custom_status=baking.to_dict())
    (shown,) = listed(world, hub).rollouts
    assert (shown.state, shown.broken) == ("baking", True)
    # The instance is purged: the recorded end is shown.
    record_outcome(world.clients, rollout, "rolled_back")
    hub.documents.clear()
    (shown,) = listed(world, hub).rollouts
    assert (shown.state, shown.broken) == ("rolled_back", False)


@pytest.mark.parametrize(("state", "step"), [("testing", -1), ("baking", 0), ("deploying", None)])
def test_a_promotion_is_about_the_test_or_a_step(
    world: World, state: str, step: int | None
) -> None:
    hub = TaskHub()
    rollout = request_rollout(world, hub, "digits", "1", minutes=0)
    (asked,) = listed(world, hub).rollouts
    now: dict[str, Any] = asked.model_dump(exclude={"broken", "created_at"}, mode="json")
    status = RolloutStatus.from_dict({**now, "state": state})
    hub.add(rollout, "rollout", custom_status=status.to_dict())
    body = b'{"by": "ada", "reason": "the test cannot be made"}'
    answer = asyncio.run(ask(promote_rollout, world.clients, hub, rollout=rollout, body=body))
    if step is None:
        check_problem(answer, 409, "rollout-not-baking")
        return
    assert answer.status == 202
    for each in (-1, 0, 1):
        request = ReadDirections(rollout=rollout, endpoint="digits-live", step=each)
        assert (read_directions(world.clients, request).decision is not None) == (each == step)
