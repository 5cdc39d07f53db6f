"""What the picture of a pipeline reads, and what it says where it reads no further."""

from __future__ import annotations

import asyncio
import html
import re
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ServiceRequestError

from handlers.operate.api import picture
from handlers.operate.api.actions import Asked, keep_action
from handlers.platform import record_store
from handlers.platform.bulkheads import AZURE_ML
from handlers.platform.rollout_index import index_rollout, record_outcome, record_traffic
from handlers.platform.run_index import index_run
from orchestrations.configuration.approve import Approval
from orchestrations.contracts.approvals import Agreed, Answer, Question
from orchestrations.contracts.rollouts import EndpointTraffic, RolloutStatus
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import RunRecord
from tests.fakes.azure_ml import World
from tests.unit.handlers.asking import ask
from tests.unit.handlers.rollout.test_requests import DEPLOYING
from tests.unit.orchestrations.examples import run_status

NOW = datetime.now(UTC)


def drawn(world: World) -> str:
    asked = {"query": {"days": "10"}, "now": datetime.now(UTC), "service": AZURE_ML}
    found = ask(picture.get_picture, world.clients, None, DEPLOYING, name="digits", **asked)  # pyright: ignore[reportArgumentType] - the test's own
    answer = asyncio.run(found)
    assert answer.status == 200, answer.document
    response = answer.to_conditional_response(None)
    assert response.mimetype == "image/svg+xml"
    return html.unescape(response.get_body().decode())


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def run(world: World, name: str, days: float) -> None:
    record = RunRecord(status=run_status(name, "cancelled", ago(days)), started_at=ago(days))
    index_run(world.clients.records, record)


def rollout(world: World, version: str, days: float, **traffic: int) -> str:
    name = f"rollout-digits-live-{version}"
    status = RolloutStatus(
        id=name, pipeline="digits", run="digits-aa-1", endpoint="digits-live",
        model=Model(name="digits", version=version, path="p"), deployment=f"model-{version}",
        state="waiting", since=ago(days), step=0, steps=1,
    )  # fmt: skip
    index_rollout(world.clients, status)
    shares = EndpointTraffic(traffic={key.replace("_", "-"): it for key, it in traffic.items()})
    record_traffic(world.clients, name, shares, at=ago(days - 0.1))
    return name


def test_it_has_the_rollouts_of_the_time_and_the_traffic_from_before_it(world: World) -> None:
    rollout(world, "1", 20, model_1=100)
    record_outcome(world.clients, rollout(world, "2", 5, model_2=100), "live")
    found = drawn(world)
    assert "rollout of version 2 to digits-live: finished" in found
    assert "rollout of version 1" not in found
    shares = re.findall(r"(model-\d) has 100 % of the traffic", found)
    assert shares == ["model-1", "model-2"]


def test_it_has_what_people_were_asked_and_did_about_the_pipeline_alone(world: World) -> None:
    run(world, "digits-aa-1", 3)
    given = Answer(verb="approve", by="ada", reason="looks good", at=ago(1))
    rule = Approval(before="registration")
    for name, pipeline in (("digits-aa-1", "digits"), ("digits-sweep-aa-1", "digits-sweep")):
        agreed = Agreed(before="registration", pipeline=pipeline, model=pipeline, run=name)
        question = Question(agreed=agreed, hash="h", rule=rule, asked_at=ago(2), answer=given)
        record_store.create(
            world.clients.records, f"approvals/{agreed.id}.json", question.to_dict()
        )
    did = Asked(by="bo", reason="wrong upload")
    for on in ("pipeline digits", "run digits-bb-1", "model digits:2", "run digits-sweep-aa-1"):
        keep_action(world.clients, "do", on, did, outcome="done")
    found = drawn(world)
    assert "digits, asked before registration: approved by ada: looks good" in found
    assert "digits-sweep" not in found
    assert "3 actions of people" in found


def test_it_says_how_far_back_it_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        run(world, f"digits-aa-{number}", number + 1)
    assert "is not read" not in drawn(world)
    monkeypatch.setattr(picture, "RUNS_READ", 3)
    assert f"runs: what is older than {ago(3):%Y-%m-%d %H:%M:%S} UTC is not read" in drawn(world)


def test_without_azure_ml_it_has_all_but_the_versions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(world, "digits-aa-1", 3)
    refuse = Mock(side_effect=ServiceRequestError("no route"))
    monkeypatch.setattr(world.workspace.models, "list", refuse)
    found = drawn(world)
    assert "versions: Azure ML could not be asked: ServiceRequestError" in found
    assert "run digits-aa-1 cancelled" in found
