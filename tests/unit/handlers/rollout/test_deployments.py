"""Deployments of earlier rollouts, deployments of people, and the tags of models."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from handlers.platform.rollout_index import read_traffic_changes
from handlers.platform.settings import APP_FOLDER
from handlers.rollout.deployments import (
    check_deployment,
    choose_deployment,
    deployments_of,
    ensure_deployment,
    record_rollout,
)
from handlers.rollout.endpoint_claims import claim_endpoint
from handlers.rollout.endpoints import check_smoke_job, set_traffic
from handlers.rollout.observing import count_jobs
from orchestrations.configuration.deploy import BatchDeploy
from orchestrations.contracts.rollouts import (
    ClaimEndpoint,
    EndpointTraffic,
    EnsureDeployment,
    Observation,
    RecordRollout,
    RolloutOutcome,
    RolloutRequest,
    SetTraffic,
    TestDeployment,
)
from orchestrations.contracts.runs import Model
from orchestrations.errors import RolloutImpossible
from orchestrations.names import smoke_job
from tests.fakes.azure_ml import World, a_deployment, a_job, make_world
from tests.unit.handlers.rollout.test_requests import DEPLOY, DEPLOYING, NOW

LIVE = "digits-live"
MODEL = Model(name="digits", version="2", path="azureml://m/2")


def ensure(world: World) -> str:
    request = EnsureDeployment(
        rollout=f"rollout-{LIVE}-2_1",
        deployment="model-2",
        request=RolloutRequest(pipeline=DEPLOYING, model=MODEL, run="run-2", attempt=1),
    )
    return ensure_deployment(world.clients, request).state


def put(
    world: World, model: str = "digits:2", state: str = "Succeeded", name: str = "model-2"
) -> Any:
    made = a_deployment(name, LIVE, model, state)
    world.workspace.online_deployments.create_or_update(made)
    return made


def test_the_deployment_of_an_earlier_rollout_of_the_model_is_used_again(world: World) -> None:
    put(world)
    assert ensure(world) == "ready"
    assert list(deployments_of(world.clients, DEPLOY, MODEL)) == ["model-2"]


@pytest.mark.parametrize("change", ["tags", "model"])
def test_a_deployment_of_people_or_of_another_model_is_not(world: World, change: str) -> None:
    made = put(world, "shapes:2" if change == "model" else "digits:2")
    if change == "tags":
        made.tags = {}
    assert not deployments_of(world.clients, DEPLOY, MODEL)
    with pytest.raises(RolloutImpossible, match="delete it"):
        ensure(world)


def test_a_failed_deployment_of_an_earlier_rollout_is_made_again(world: World) -> None:
    put(world, state="Failed")
    with patch.object(world.workspace.online_deployments, "begin_delete", create=True) as delete:
        assert ensure(world) == "provisioning"
    delete.assert_called_once_with("model-2", LIVE)
    assert not deployments_of(world.clients, DEPLOY, MODEL)


def test_fixed_scoring_code_gets_a_deployment_next_to_the_one_that_serves(tmp_path: Path) -> None:
    world = make_world({"PIPELINES_FOLDER": str(tmp_path)})
    folder = tmp_path / DEPLOYING.name
    shutil.copytree(APP_FOLDER / "pipelines" / "digits-live", folder)

    def chosen(*, any_code: bool = False) -> str:
        return choose_deployment(world.clients, DEPLOYING, MODEL, any_code=any_code).name

    def made(name: str) -> None:
        def create(deployment: Any) -> None:
            put(world, name=name).tags.update(deployment.tags)

        request = RolloutRequest(pipeline=DEPLOYING, model=MODEL, run="digits-1", deployment=name)
        asked = EnsureDeployment(rollout="rollout-1", deployment=name, request=request)
        deployments = world.workspace.online_deployments
        with patch.object(deployments, "begin_create_or_update", create, create=True):
            assert ensure_deployment(world.clients, asked).state == "provisioning"

    assert chosen() == "model-2"
    made("model-2")
    assert chosen() == "model-2", "nothing has changed"
    with (folder / "serving" / "score.py").open("a") as file:
        file.write("# fixed\n")
    fixed = chosen()
    assert re.fullmatch(r"model-2-[0-9a-f]{8}", fixed)
    assert chosen(any_code=True) == "model-2", "traffic moves back to what is there"
    made(fixed)
    assert chosen() == fixed
    assert set(deployments_of(world.clients, DEPLOY, MODEL)) == {"model-2", fixed}


def test_a_model_that_serves_with_its_earlier_code_is_no_challenger(world: World) -> None:
    put(world)
    model = SimpleNamespace(name="digits", version="2", tags={})
    world.workspace.models.store["digits", "2"] = model
    request = RecordRollout(
        rollout="rollout-digits-live-2_1",
        endpoint=LIVE,
        model=MODEL,
        outcome="rolled_back",
        serving="model-2",
    )
    record_rollout(world.clients, request)
    kept = world.workspace.models.store["digits", "2"].tags
    assert kept["landfall.in-service"] == "true"
    assert "landfall.role" not in kept


def test_what_is_gone_is_impossible(world: World) -> None:
    with pytest.raises(RolloutImpossible, match="deployment model-2 of endpoint digits-live"):
        check_deployment(world.clients, "online", LIVE, "model-2")
    traffic = EndpointTraffic(traffic={"model-2": 100})
    with pytest.raises(RolloutImpossible, match="endpoint digits-live was deleted"):
        set_traffic(world.clients, SetTraffic(endpoint=LIVE, traffic=traffic))


def test_the_traffic_that_a_rollout_sets_is_recorded_once(world: World) -> None:
    endpoints = world.workspace.online_endpoints
    endpoints.store[(LIVE,)] = SimpleNamespace(name=LIVE, traffic={}, mirror_traffic={})
    claim = ClaimEndpoint(rollout="rollout-digits-live-2", endpoint=LIVE, version=2)
    shares = {"model-1": 90, "model-2": 10}, {"model-2": 100}

    def change(endpoint: SimpleNamespace) -> Mock:
        endpoints.store[(LIVE,)] = endpoint
        return Mock()

    def set_to(traffic: dict[str, int]) -> None:
        request = SetTraffic(endpoint=LIVE, traffic=EndpointTraffic(traffic=traffic))
        with patch.object(endpoints, "begin_create_or_update", change, create=True):
            set_traffic(world.clients, request)

    set_to({"model-1": 100})  # by no rollout
    claim_endpoint(world.clients, claim)
    for traffic in (*shares, shares[1]):
        set_to(traffic)
    changes = read_traffic_changes(world.clients, claim.rollout)
    assert [traffic for _, traffic in changes] == list(shares)


def test_a_smoke_job_whose_model_is_gone_is_impossible(world: World) -> None:
    deploy = BatchDeploy(kind="batch", endpoint=LIVE, compute="cpu")
    request = TestDeployment(
        endpoint=LIVE,
        deployment="model-2",
        pipeline=DEPLOYING.model_copy(update={"deploy": deploy}),
        model=MODEL,
        smoke_job=smoke_job(LIVE, "model-2", 1),
    )
    with pytest.raises(RolloutImpossible, match="model digits:2 was deleted"):
        check_smoke_job(world.clients, request, deploy, now=NOW)


def test_smoke_jobs_of_every_attempt_are_left_out_of_the_count(world: World) -> None:
    names = [smoke_job(LIVE, "model-2", attempt) for attempt in (0, 1)]
    jobs = [a_job(name, "Failed") for name in names] + [a_job("scoring-1", "Completed")]
    vars(world.workspace).update(batch_deployments=Mock())
    vars(world.workspace)["batch_deployments"].list_jobs.return_value = iter(jobs)
    assert count_jobs(world.clients, LIVE, "model-2") == Observation(requests=1, failures=0)


def tags_after(
    world: World, outcome: RolloutOutcome, serving: str | None, **before: dict[str, str]
) -> dict[str, dict[str, str]]:
    """The tags of models 1 and 2 after the rollout of model 2."""
    for version in ("1", "2"):
        given = {f"landfall.{key}": value for key, value in before.get(f"m{version}", {}).items()}
        world.workspace.models.store["digits", version] = SimpleNamespace(
            name="digits", version=version, tags=given
        )
        world.workspace.online_deployments.create_or_update(
            a_deployment(f"model-{version}", LIVE, f"digits:{version}")
        )
    request = RecordRollout(
        rollout="r", endpoint=LIVE, model=MODEL, outcome=outcome, serving=serving
    )
    record_rollout(world.clients, request)
    found = world.workspace.models.store
    return {
        version: {
            key.removeprefix("landfall."): value
            for key, value in found["digits", version].tags.items()
            if key not in ("landfall.rollout", "landfall.rollout-outcome")
        }
        for version in ("1", "2")
    }


def test_a_live_model_is_no_challenger_and_not_rolled_back(world: World) -> None:
    before = {"role": "challenger", "rolled-back-at": NOW.isoformat()}
    found = tags_after(world, "live", "model-2", m1={"in-service": "true"}, m2=before)
    assert found == {"1": {}, "2": {"in-service": "true"}}


@pytest.mark.parametrize(("was_in_service", "is_kept"), [("true", True), ("false", False)])
def test_the_time_of_a_promotion_counts_while_it_is_in_service(
    world: World, was_in_service: str, *, is_kept: bool
) -> None:
    since = {"in-service": was_in_service, "in-service-since": NOW.isoformat()}
    found = tags_after(world, "live", "model-2", m2=since)
    assert ("in-service-since" in found["2"]) == is_kept


def test_only_a_verdict_makes_a_challenger(world: World) -> None:
    for outcome in ("failed", "superseded"):
        assert tags_after(world, outcome, "model-1") == {"1": {"in-service": "true"}, "2": {}}
    assert tags_after(world, "rolled_back", "model-1")["2"] == {"role": "challenger"}


def test_a_model_that_was_deleted_has_no_tags_to_write(world: World) -> None:
    request = RecordRollout(rollout="r", endpoint=LIVE, model=MODEL, outcome="failed", serving=None)
    record_rollout(world.clients, request)
    assert world.workspace.models.puts == []
