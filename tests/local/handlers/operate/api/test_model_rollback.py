"""A rolled-back model loses its traffic: the orchestrator and its activities on real endpoints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.ai.ml.entities import AmlCompute

from handlers.operate.api.champion_changes import promote_model, roll_back_model
from handlers.operate.api.rollouts import start_rollout_of_model
from handlers.platform.activity_adapter import functions
from handlers.platform.clients import Clients
from handlers.platform.service_bus import Message
from handlers.rollout.requests import handle_rollout
from handlers.training.champions import find_champion
from harness.waiting import until
from orchestrations.contracts.base import Done
from orchestrations.contracts.manifest import encode_line
from orchestrations.contracts.rollouts import RolloutInput, RolloutRequest, RolloutStatus
from orchestrations.contracts.runs import Model
from orchestrations.names import rollout_id
from orchestrations.platform.activities import RESULT_KEY
from orchestrations.rollout.rollout import rollout
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.rollout.shop import Shop
from tests.unit.handlers.asking import ask
from tests.unit.handlers.azure_ml_fake import Background
from tests.unit.orchestrations.driver import Driver

LAST_STEP = {"traffic": 100, "bake_minutes": 0}
AT_ONCE: dict[str, Any] = {
    "steps": [LAST_STEP],
    "guards": {"minimum_requests": 0},
    "keep_previous_hours": 24,
}
BAKING = {**AT_ONCE, "steps": [{"mirror": 20, "bake_minutes": 60}, LAST_STEP]}


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a thread: the driver has a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


class Stage:
    """A pipeline with an endpoint, the app's orchestrator on a virtual clock, and its queue."""

    def __init__(self, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, **shop: Any) -> None:
        self.shop = Shop(cloud, **shop)
        self.messages: dict[str, str] = {}
        self.told: list[tuple[str, str]] = []
        activities: dict[str, Any] = {each.__name__: each for each in functions(cloud.clients)}
        changed = {
            "ensure_deployment": self._until_ended(activities["ensure_deployment"]),
            "test_deployment": self._until_tested(activities["test_deployment"]),
            "publish_notification": self._publish,
        }
        self.driver = Driver(
            activities={**activities, **changed}, orchestrators={"rollout": rollout}
        )
        monkeypatch.setattr(Clients, "message_queues", SimpleNamespace(send=self._send))
        monkeypatch.setitem(vars(cloud.clients), "background", Background())

    def _send(self, queue: str, *messages: Message) -> None:
        assert queue == "rollouts"
        self.messages |= {each.message_id: each.body for each in messages}

    def _publish(self, given: Any) -> Any:
        notification = given["notification"]
        self.told.append((notification["status"]["id"], notification["kind"]))
        return {RESULT_KEY: Done().to_dict()}

    def _until_ended(self, ensure: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The clock stands still while a process starts."""

        def run(given: Any) -> Any:
            def ended() -> Any:
                found = ensure(given)
                return None if found.get(RESULT_KEY, {}).get("state") == "provisioning" else found

            return until(ended, what="a deployment")

        return run

    def _until_tested(self, test: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(given: Any) -> Any:
            if given.get("deadline") is not None:
                deadline = datetime.now(UTC) + timedelta(minutes=5)
                given = {**given, "deadline": deadline.isoformat()}

            def tested() -> Any:
                found = test(given)
                return None if found.get(RESULT_KEY, {}).get("job") else found

            return until(tested, what="a smoke test")

        return run

    def model(self, version: str, compared_with: str | None = None) -> Model:
        made = self.shop.model(version, "2")
        if compared_with is not None:
            models = self.shop.clients.ml.models
            registered = models.get(made.name, version)
            registered.tags = {**(registered.tags or {}), "landfall.champion": compared_with}
            models.create_or_update(registered)
        return made

    def begin(self, model: Model) -> None:
        """Start the rollout that a run starts."""
        request = RolloutRequest(pipeline=self.shop.pipeline, model=model, run="run-1")
        name = rollout_id(self.shop.endpoint, model.version)
        self.driver.start("rollout", name, RolloutInput(request=request).to_dict())

    def run(self) -> None:
        self.driver.run()

    def ask(self, function: Callable[..., Any], body: dict[str, Any], **path: Any) -> Any:
        """Ask the API, and deliver what it sends."""
        answer = finish(
            ask(
                function,
                self.shop.clients,
                self.driver.client,
                self.shop.pipeline,
                body=json.dumps({"by": "ada", "reason": "wrong answers", **body}).encode(),
                now=datetime.now(UTC),
                **path,
            )
        )
        assert answer.status in (200, 202), answer.document
        for message in self.messages.values():
            finish(
                handle_rollout(
                    self.shop.clients, self.driver.client, message, now=datetime.now(UTC)
                )
            )
        self.messages.clear()
        return answer.document

    def change(self, function: Callable[..., Any], version: str) -> Any:
        return self.ask(function, {}, name=self.shop.name, version=version)

    def status(self, rollout: str) -> RolloutStatus:
        instance = self.driver.instances[rollout]
        assert instance.error is None
        return RolloutStatus.from_dict(instance.output)

    @property
    def champion(self) -> str | None:
        found = find_champion(self.shop.clients, self.shop.pipeline)
        return None if found is None else found.version

    @property
    def deployments(self) -> set[str]:
        ml = self.shop.clients.ml
        operations: Any = ml.batch_deployments if self.is_batch else ml.online_deployments
        return {str(each.name) for each in operations.list(self.shop.endpoint)}

    @property
    def is_batch(self) -> bool:
        return self.shop.kind == "batch"


def prepare_batch(stage: Stage) -> None:
    """The cluster, and the data that smoke jobs score."""
    cluster = AmlCompute(name="cpu", size="Standard_D4s_v5", max_instances=4)
    stage.shop.clients.ml.compute.begin_create_or_update(cluster).result()
    line = encode_line("0.txt", 1, None, "etag")
    stage.shop.upload("landfall", f"manifests/{stage.shop.name}/v1/manifest.jsonl", line)
    stage.shop.upload("landing", f"{stage.shop.pipeline.source.prefix}0.txt", "6")


@pytest.fixture(params=["online", "batch"])
def stage(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stage:
    if request.param == "online":
        return Stage(cloud, monkeypatch, deploy=AT_ONCE)
    made = Stage(cloud, monkeypatch, is_batch=True)
    prepare_batch(made)
    return made


def test_a_rolled_back_model_loses_its_traffic_whether_the_one_before_is_kept_or_not(
    stage: Stage,
) -> None:
    shop = stage.shop
    stage.begin(stage.model("1"))
    stage.run()
    assert shop.ensure().traffic == {"model-1": 100}
    stage.begin(stage.model("2", compared_with="1"))
    answers: list[Any] = []
    # Version 2 is live, and the deployment of version 1 is kept for a day.
    two_hours = stage.driver.seconds + 2 * 3600
    stage.driver.at(two_hours, lambda: answers.append(stage.change(roll_back_model, "2")))
    stage.run()
    (back,) = answers
    assert (back["champion"], back["changed"], back["endpoint"]) == ("1", True, "kept-deployment")
    assert shop.ensure().traffic == {"model-1": 100}
    assert stage.deployments == {"model-1"}
    assert stage.champion == "1"
    bad, restored = f"rollout-{shop.endpoint}-2", f"rollout-{shop.endpoint}-1_1"
    assert back["rollout"] == restored
    assert stage.status(bad).state == "rolled_back"
    assert stage.status(bad).reason == "rolled back by ada: wrong answers"
    assert stage.status(restored).state == "finished"
    again = stage.change(roll_back_model, "2")
    assert (again["changed"], again["endpoint"], again["rollout"]) == (False, "serving", None)
    # "It was the data": version 2 is promoted, with the pipeline's steps.
    forward = stage.change(promote_model, "2")
    assert (forward["champion"], forward["endpoint"]) == ("2", "new-deployment")
    stage.run()
    assert stage.status(forward["rollout"]).state == "finished"
    assert shop.ensure().traffic == {"model-2": 100}
    assert stage.deployments == {"model-2"}, "the time of the previous one is over"
    assert shop.tags("2").get("landfall.role") is None
    # Now the deployment of version 1 is gone.
    back = stage.change(roll_back_model, "2")
    assert (back["champion"], back["endpoint"]) == ("1", "new-deployment")
    stage.run()
    assert stage.status(back["rollout"]).state == "finished"
    assert shop.ensure().traffic == {"model-1": 100}
    assert (stage.champion, stage.deployments) == ("1", {"model-1"})


def test_a_deleted_endpoint_ends_the_rollout_and_the_next_one_makes_it_again(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(cloud, monkeypatch, deploy=BAKING)
    shop = stage.shop
    stage.begin(stage.model("1"))
    stage.run()
    stage.begin(stage.model("2", compared_with="1"))
    endpoints: Any = shop.clients.ml.online_endpoints
    now = stage.driver.seconds
    stage.driver.at(now + 600, lambda: endpoints.begin_delete(shop.endpoint).wait(60))
    stage.run()
    ended = stage.status(f"rollout-{shop.endpoint}-2")
    assert ended.state == "failed"
    assert "was deleted" in (ended.reason or "")
    assert stage.driver.seconds - now < 3600
    assert stage.told[-1] == (ended.id, "failed")
    started = stage.ask(
        start_rollout_of_model, {"pipeline": shop.name, "version": "2", "at_once": True}
    )
    stage.run()
    assert stage.status(started["id"]).state == "finished"
    assert shop.ensure().traffic == {"model-2": 100}


def test_a_deployment_that_a_person_deletes_while_it_bakes_ends_the_rollout(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(cloud, monkeypatch, deploy=BAKING)
    shop = stage.shop
    stage.begin(stage.model("1"))
    stage.run()
    stage.begin(stage.model("2", compared_with="1"))
    endpoints: Any = shop.clients.ml.online_deployments

    def delete() -> None:
        shop.set({"model-1": 100})
        endpoints.begin_delete("model-2", shop.endpoint).wait(60)

    stage.driver.at(stage.driver.seconds + 600, delete)
    stage.run()
    ended = stage.status(f"rollout-{shop.endpoint}-2")
    assert ended.state == "failed"
    assert f"deployment model-2 of endpoint {shop.endpoint} was deleted" in (ended.reason or "")
    assert shop.ensure().traffic == {"model-1": 100}
    assert shop.tags("2").get("landfall.role") is None, "no verdict on the model"
