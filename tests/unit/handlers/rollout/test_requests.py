"""People start rollouts, and change the champion of a pipeline with an endpoint."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from handlers.operate.api.actions import ActionFilter, list_actions
from handlers.operate.api.champion_changes import promote_model, roll_back_model
from handlers.operate.api.requests import Answer
from handlers.operate.api.rollouts import start_rollout_of_model
from handlers.platform.clients import Clients
from handlers.platform.rollout_index import record_outcome
from handlers.platform.service_bus import Message
from handlers.rollout import requests
from handlers.rollout.deployments import DeploymentChoice
from handlers.rollout.endpoint_claims import (
    claim_endpoint,
    newest_rollout,
    register,
    release,
    superseding_rollout,
)
from handlers.rollout.observing import read_directions
from handlers.rollout.requests import handle_rollout
from handlers.training.champions import change_champion, find_champion
from orchestrations.configuration.deploy import OnlineDeploy
from orchestrations.contracts.rollouts import (
    ChangeChampion,
    ClaimEndpoint,
    Directions,
    ReadDirections,
    RolloutRequest,
    RolloutStatus,
)
from orchestrations.errors import RolloutImpossible
from orchestrations.names import rollout_id
from tests.fakes.azure_ml import (
    Background,
    World,
    a_deployment,
    an_endpoint,
    make_world,
)
from tests.fakes.durable_client import TaskHub
from tests.unit.handlers.asking import ask, check_problem
from tests.unit.orchestrations.examples import PIPELINE

NOW = datetime(2026, 11, 22, 3, tzinfo=UTC)
DEPLOY = OnlineDeploy.model_validate(
    {
        "endpoint": "digits-live",
        "instance_type": "Standard_DS3_v2",
        "steps": [{"mirror": 20, "bake_minutes": 1}, {"traffic": 100, "bake_minutes": 1}],
    }
)
DEPLOYING = PIPELINE.model_copy(update={"deploy": DEPLOY})


class Bus:
    """The messages on `rollouts`, without duplicates."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def send(self, _: str, *messages: Message) -> None:
        for each in messages:
            self.messages.setdefault(each.message_id, each.body)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    bus = Bus()
    monkeypatch.setattr(Clients, "message_queues", bus)
    return bus


@pytest.fixture
def world() -> World:
    """Version 3 has all traffic, and replaced version 2, whose deployment is gone."""
    made = make_world()
    vars(made.clients).update(background=Background())
    for version, compared_with in (("1", None), ("2", "1"), ("3", "2")):
        tags = {"landfall.dataset-version": f"v{version}", "landfall.run": f"run-{version}"}
        if compared_with is not None:
            tags["landfall.champion"] = compared_with
        if version == "3":
            tags["landfall.in-service"] = "true"
        made.workspace.models.store["digits", version] = SimpleNamespace(
            name="digits",
            version=version,
            path=f"azureml://m/{version}",
            tags=tags,
            properties={},
            creation_context=SimpleNamespace(created_at=NOW),
        )
    made.workspace.online_endpoints.create_or_update(an_endpoint("digits-live", model_3=100))
    made.workspace.online_deployments.create_or_update(
        a_deployment("model-3", "digits-live", "digits:3")
    )
    return made


async def start(world: World, hub: Any, version: str, **more: Any) -> Answer:
    body = {"pipeline": "digits", "version": version, "by": "ada", "reason": "again", **more}
    return await ask(
        start_rollout_of_model,
        world.clients,
        hub,
        DEPLOYING,
        PIPELINE.model_copy(update={"name": "other"}),
        body=json.dumps(body).encode(),
    )


async def change(world: World, hub: Any, verb: str, version: str, pipeline: Any = DEPLOYING) -> Any:
    function = promote_model if verb == "promote" else roll_back_model
    body = json.dumps({"by": "ada", "reason": "wrong answers since 02:00"}).encode()
    answer = await ask(
        function,
        world.clients,
        hub,
        pipeline,
        body=body,
        now=NOW,
        name="digits",
        version=version,
    )
    assert answer.status == 200, answer.document
    return answer.document


async def deliver(world: World, hub: Any, bus: Bus) -> list[RolloutRequest]:
    """Deliver the messages on `rollouts`, each twice."""
    found: list[RolloutRequest] = []
    for body in [*bus.messages.values()]:
        for _ in range(2):
            await handle_rollout(world.clients, hub, body, now=NOW)
        found.append(RolloutRequest.from_dict(json.loads(body)))
    bus.messages.clear()
    return found


def show(hub: TaskHub, rollout: str, state: str, runtime: str = "Running", **more: Any) -> None:
    version = rollout.rpartition("-")[2].partition("_")[0]
    status = RolloutStatus.from_dict(
        {
            "id": rollout,
            "pipeline": "digits",
            "run": "run",
            "model": {"name": "digits", "version": version, "path": "azureml://m"},
            "endpoint": "digits-live",
            "deployment": f"model-{version}",
            "state": state,
            "since": NOW.isoformat(),
            "step": 0,
            "steps": 1,
            **more,
        }
    )
    hub.add(rollout, "rollout", runtime, custom_status=status.to_dict())


def directions(world: World, rollout: str) -> Any:
    request = ReadDirections(rollout=rollout, endpoint="digits-live", step=1)
    return read_directions(world.clients, request)


async def test_a_person_starts_a_rollout_and_a_repeated_request_gets_the_same_one(
    world: World, bus: Bus
) -> None:
    hub = TaskHub()
    answer = await start(world, hub, "2")
    assert answer.status == 202
    rollout = "rollout-digits-live-2_1"
    assert answer.document == {"id": rollout, "status_url": f"/api/rollouts/{rollout}"}
    assert (await start(world, hub, "2")).document["id"] == rollout, "before it has begun"
    (request,) = await deliver(world, hub, bus)
    assert (request.model.version, request.run, request.attempt) == ("2", "run-2", 1)
    assert (request.at_once, request.champion) == (False, None)
    assert hub.started == [rollout]
    assert newest_rollout(world.clients, "digits-live") == (rollout, 1)
    for state in ("waiting", "baking", "live"):
        show(hub, rollout, state)
        assert (await start(world, hub, "2")).document["id"] == rollout
    assert await deliver(world, hub, bus) == []
    action = list_actions(world.clients, ActionFilter()).actions[0]
    assert (action.action, action.on, action.by) == ("roll out", "model digits:2", "ada")


@pytest.mark.parametrize(("state", "runtime"), [("failed", "Completed"), ("baking", "Terminated")])
async def test_after_an_end_there_is_a_new_attempt(
    world: World, bus: Bus, state: str, runtime: str
) -> None:
    hub = TaskHub()
    await start(world, hub, "3")
    await deliver(world, hub, bus)
    show(hub, "rollout-digits-live-3_1", state, runtime)
    assert (await start(world, hub, "3")).document["id"] == "rollout-digits-live-3_2"
    await deliver(world, hub, bus)
    # The instance is purged, its outcome is kept.
    record_outcome(world.clients, "rollout-digits-live-3_2", "failed")
    hub.documents.clear()
    assert (await start(world, hub, "3")).document["id"] == "rollout-digits-live-3_3"


async def test_a_rollout_at_once_does_not_wait_for_one_in_steps(world: World, bus: Bus) -> None:
    hub = TaskHub()
    await start(world, hub, "2")
    await deliver(world, hub, bus)
    show(hub, "rollout-digits-live-2_1", "baking")
    faster = (await start(world, hub, "2", at_once=True)).document["id"]
    assert faster == "rollout-digits-live-2_2"
    (request,) = await deliver(world, hub, bus)
    assert request.at_once
    assert directions(world, "rollout-digits-live-2_1").superseded_by == faster


async def test_fixed_scoring_code_is_rolled_out_beside_the_rollout_that_is_live(
    world: World, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = TaskHub()
    await start(world, hub, "3")
    await deliver(world, hub, bus)
    show(hub, "rollout-digits-live-3_1", "live")
    choice = DeploymentChoice("model-3-0123abcd", ["model-3"])
    monkeypatch.setattr(requests, "choose_deployment", Mock(return_value=choice))
    assert (await start(world, hub, "3")).document["id"] == "rollout-digits-live-3_2"
    (request,) = await deliver(world, hub, bus)
    assert request.deployment == "model-3-0123abcd"
    show(hub, "rollout-digits-live-3_2", "baking", deployment="model-3-0123abcd")
    assert (await start(world, hub, "3")).document["id"] == "rollout-digits-live-3_2"


async def test_what_cannot_be_rolled_out_is_refused(world: World, bus: Bus) -> None:
    hub = TaskHub()
    check_problem(await start(world, hub, "9"), 404, "unknown-model", "digits:9")
    check_problem(await start(world, hub, "2", pipeline="none"), 404, "unknown-pipeline")
    check_problem(await start(world, hub, "2", pipeline="other"), 409, "no-endpoint", "deploy")
    check_problem(await start(world, hub, "v2"), 400, "invalid-request", "version")
    world.workspace.models.archived.add(("digits", "1"))
    check_problem(await start(world, hub, "1"), 409, "not-promotable", "archived")
    assert bus.messages == {}


async def test_a_rollback_of_a_model_moves_the_traffic_by_a_new_deployment(
    world: World, bus: Bus
) -> None:
    hub = TaskHub()
    answer = await change(world, hub, "rollback", "3")
    rollout = "rollout-digits-live-2_1"
    assert answer["champion"] == "2"
    assert (answer["changed"], answer["endpoint"]) == (True, "new-deployment")
    assert (answer["rollout"], answer["status_url"]) == (rollout, f"/api/rollouts/{rollout}")
    assert "deployed again" in answer["message"]
    champion = find_champion(world.clients, DEPLOYING)
    assert champion is not None
    assert champion.version == "2"
    again = await change(world, hub, "rollback", "3")
    assert (again["changed"], again["rollout"]) == (False, rollout)
    (request,) = await deliver(world, hub, bus)
    assert (request.model.version, request.at_once) == ("2", True)
    assert request.champion is not None
    assert (request.champion.verb, request.champion.version) == ("rollback", "3")


async def test_the_rollout_of_the_bad_model_is_rolled_back_and_not_fought(
    world: World, bus: Bus
) -> None:
    hub = TaskHub()
    bad = "rollout-digits-live-3"
    claim = ClaimEndpoint(rollout=bad, endpoint="digits-live", version=3)
    assert claim_endpoint(world.clients, claim).granted
    show(hub, bad, "live")
    world.workspace.online_deployments.create_or_update(
        a_deployment("model-2", "digits-live", "digits:2")
    )
    answer = await change(world, hub, "rollback", "3")
    assert answer["endpoint"] == "kept-deployment"
    assert "still exists and gets the traffic at once" in answer["message"]
    assert directions(world, bad).decision is None, "the message carries it"
    await deliver(world, hub, bus)
    found = directions(world, bad)
    assert (found.decision.verb, found.decision.by) == ("rollback", "ada")
    assert found.superseded_by == answer["rollout"]
    assert (bad, "wake_up") in hub.raised


async def test_a_message_that_is_delivered_late_rolls_no_later_rollout_back(
    world: World, bus: Bus
) -> None:
    hub = TaskHub()
    await change(world, hub, "rollback", "3")
    (late,) = bus.messages.values()
    (request,) = await deliver(world, hub, bus)
    first = rollout_id("digits-live", "2", request.attempt)
    release(world.clients, "digits-live", first)
    again = rollout_id("digits-live", "3", 2)
    register(world.clients, "digits-live", again, version=3, attempt=2)
    claim = ClaimEndpoint(rollout=again, endpoint="digits-live", version=3)
    assert claim_endpoint(world.clients, claim).granted
    await handle_rollout(world.clients, hub, late, now=NOW)  # pyright: ignore[reportArgumentType] - a fake
    assert directions(world, again) == Directions()


async def test_a_promotion_does_not_roll_back_and_has_steps(world: World, bus: Bus) -> None:
    hub = TaskHub()
    holder = "rollout-digits-live-3"
    claim = ClaimEndpoint(rollout=holder, endpoint="digits-live", version=3)
    assert claim_endpoint(world.clients, claim).granted
    answer = await change(world, hub, "promote", "1")
    assert (answer["champion"], answer["endpoint"]) == ("1", "new-deployment")
    assert "in steps" in answer["message"]
    (request,) = await deliver(world, hub, bus)
    assert (request.model.version, request.at_once) == ("1", False)
    found = directions(world, holder)
    assert (found.decision, found.superseded_by) == (None, answer["rollout"])


async def test_a_repeated_change_of_a_version_that_serves_does_nothing(
    world: World, bus: Bus
) -> None:
    answer = await change(world, TaskHub(), "promote", "3")
    assert (answer["changed"], answer["endpoint"], answer["rollout"]) == (False, "serving", None)
    assert bus.messages == {}


async def test_without_an_endpoint_the_answer_says_so(world: World, bus: Bus) -> None:
    answer = await change(world, TaskHub(), "rollback", "3", PIPELINE)
    assert (answer["champion"], answer["endpoint"]) == ("2", "none")
    assert (answer["rollout"], answer["status_url"]) == (None, None)
    assert "manages no endpoint" in answer["message"]
    assert bus.messages == {}


async def test_a_process_that_dies_before_the_tags_leaves_a_rollout_that_writes_them(
    world: World, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    hub = TaskHub()
    with monkeypatch.context() as patch:
        patch.setattr("handlers.operate.api.champion_changes.change_champion", die)
        with pytest.raises(KeyboardInterrupt):
            await change(world, hub, "rollback", "3")
    (request,) = await deliver(world, hub, bus)
    assert request.champion is not None
    asked = ChangeChampion(pipeline=DEPLOYING, change=request.champion, serving="2")
    for _ in range(2):
        change_champion(world.clients, asked)
        champion = find_champion(world.clients, DEPLOYING)
        assert champion is not None
        assert champion.version == "2"


async def test_a_change_that_another_person_overtook_ends_the_rollout(
    world: World, bus: Bus
) -> None:
    hub = TaskHub()
    await change(world, hub, "rollback", "3")
    (request,) = await deliver(world, hub, bus)
    assert request.champion is not None
    world.workspace.models.store["digits", "3"].tags.pop("landfall.rolled-back-at")
    world.workspace.models.store["digits", "1"].tags |= {
        "landfall.in-service": "true",
        "landfall.in-service-since": NOW.replace(hour=5).isoformat(),
    }
    asked = ChangeChampion(pipeline=DEPLOYING, change=request.champion, serving="2")
    with pytest.raises(RolloutImpossible, match="not the champion"):
        change_champion(world.clients, asked)
    assert superseding_rollout(world.clients, "digits-live", "rollout-digits-live-2_1") is None
