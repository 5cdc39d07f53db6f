"""The activities of a rollout against endpoints whose deployments are real processes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from azure.ai.ml import Input
from azure.ai.ml.entities import AmlCompute

from handlers.rollout.deployments import (
    CODE_HEX_DIGITS,
    delete_deployments,
    deployments_of,
    record_rollout,
)
from handlers.rollout.endpoint_claims import (
    claim_endpoint,
    holders,
    release_endpoint,
    superseding_rollout,
)
from handlers.rollout.endpoints import score
from handlers.rollout.observing import (
    count_jobs,
    read_deployment_metrics,
    read_directions,
    record_decision,
)
from harness.waiting import until
from orchestrations.contracts.manifest import encode_line
from orchestrations.contracts.rollouts import (
    ClaimEndpoint,
    Decision,
    DeleteDeployments,
    EndpointTraffic,
    Observation,
    ReadDirections,
    RecordRollout,
    ReleaseEndpoint,
)
from orchestrations.contracts.runs import Model
from orchestrations.errors import DeploymentRejected, RolloutImpossible
from orchestrations.names import rollout_id
from tests.local.handlers.cloud import Cloud
from tests.local.handlers.rollout.shop import Shop

Result = TypeVar("Result")


@pytest.fixture
def shop(cloud: Cloud) -> Shop:
    return Shop(cloud)


def twice(action: Callable[[], Result]) -> Result:
    """A repeated activity, as after a crash, changes nothing."""
    first = action()
    assert action() == first
    return first


def test_models_are_deployed_tested_given_traffic_and_deleted(shop: Shop) -> None:
    began = datetime.now(UTC)
    assert twice(shop.ensure) == EndpointTraffic()
    good, bad = shop.model("1", "2"), shop.model("2", "0")
    assert twice(lambda: shop.deploy(good)).state == "ready"
    twice(lambda: shop.smoke("model-1"))
    twice(lambda: shop.set({"model-1": 100}))
    assert shop.ensure() == EndpointTraffic(traffic={"model-1": 100})
    assert shop.deploy(bad).state == "ready"
    with pytest.raises(DeploymentRejected, match=r"424.*division by zero"):
        shop.smoke("model-2")
    twice(lambda: shop.set({"model-1": 90, "model-2": 10}))
    for _ in range(3):
        assert score(shop.clients, shop.endpoint, "model-1", b'{"x": 1}') == (200, "0.5")
    now = datetime.now(UTC) + timedelta(minutes=1)
    of_good, of_bad = (
        read_deployment_metrics(shop.clients, shop.endpoint, name, since=began, now=now)
        for name in ("model-1", "model-2")
    )
    assert (of_good.requests, of_good.failures) == (5, 0)
    assert (of_bad.requests, of_bad.failures) == (1, 1)
    assert of_good.latency_p95_ms is not None
    assert 0 < of_good.latency_p95_ms < 5000

    def record(model: Model, outcome: str, serving: str) -> None:
        request = RecordRollout.model_validate(
            {
                "rollout": rollout_id(shop.endpoint, model.version),
                "endpoint": shop.endpoint,
                "model": model,
                "outcome": outcome,
                "serving": serving,
            }
        )
        twice(lambda: record_rollout(shop.clients, request))

    record(good, "live", "model-1")
    record(bad, "rolled_back", "model-1")
    assert shop.tags("1") == {
        "landfall.pipeline": shop.name,
        "landfall.dataset-version": "v1",
        "landfall.in-service": "true",
        "landfall.rollout": f"rollout-{shop.endpoint}-1",
        "landfall.rollout-outcome": "live",
    }
    assert shop.tags("2")["landfall.role"] == "challenger"
    assert "landfall.in-service" not in shop.tags("2")
    shop.set({"model-1": 100})
    request = DeleteDeployments(endpoint=shop.endpoint, deployments=["model-2", "model-9"])
    twice(lambda: delete_deployments(shop.clients, request))
    left = [each.name for each in shop.clients.ml.online_deployments.list(shop.endpoint)]
    assert left == ["model-1"]
    assert shop.pipeline.deploy is not None
    ((name, code),) = deployments_of(shop.clients, shop.pipeline.deploy, good).items()
    assert (name, len(code or "")) == ("model-1", CODE_HEX_DIGITS)


def test_models_become_the_default_of_a_batch_endpoint(cloud: Cloud) -> None:
    shop = Shop(cloud, is_batch=True)
    ml = shop.clients.ml
    cluster = AmlCompute(name="cpu", size="Standard_D4s_v5", max_instances=4)
    ml.compute.begin_create_or_update(cluster).result()
    line = encode_line("0.txt", 1, None, "etag")
    shop.upload("landfall", f"manifests/{shop.name}/v1/manifest.jsonl", line)
    data_path = f"{shop.pipeline.source.prefix}0.txt"
    shop.upload("landing", data_path, "6")
    good, bad = shop.model("1", "2"), shop.model("2", "0")
    assert twice(shop.ensure) == EndpointTraffic()
    assert twice(lambda: shop.deploy(good)).state == "ready"
    shop.smoke_until_over(good)
    twice(lambda: shop.set({"model-1": 100}))
    assert shop.ensure() == EndpointTraffic(traffic={"model-1": 100})
    assert shop.deploy(bad).state == "ready"
    with pytest.raises(DeploymentRejected, match=r"is failed: .*division by zero"):
        shop.smoke_until_over(bad)
    data = Input(type="uri_file", path="azureml://datastores/landing/paths/" + data_path)
    assert count_jobs(shop.clients, shop.endpoint, "model-2") == Observation(), "smoke jobs alone"
    for deployment, failures in (("model-1", 0), ("model-2", 1)):
        ml.batch_endpoints.invoke(
            endpoint_name=shop.endpoint, deployment_name=deployment, inputs={"data": data}
        )

        def counted(deployment: str = deployment) -> Observation | None:
            found = count_jobs(shop.clients, shop.endpoint, deployment)
            return found if found.requests else None

        expected = Observation(requests=1, failures=failures)
        assert until(counted, what=f"the end of a job of {deployment}") == expected
    late = shop.model("3", "1")
    shop.deploy(late)
    now = datetime.now(UTC)
    job = shop.smoke("model-3", model=late, deadline=now + timedelta(minutes=5)).job
    assert job is not None
    with pytest.raises(DeploymentRejected, match="was not over after"):
        shop.smoke("model-3", model=late, deadline=now)
    until(lambda: ml.jobs.get(job).status == "Canceled", what="cancellation of the smoke job")
    names = ["model-2", "model-3", "model-9"]
    request = DeleteDeployments(
        endpoint=shop.endpoint, kind="batch", deployments=names, smoke_job=job
    )
    twice(lambda: delete_deployments(shop.clients, request))
    assert [each.name for each in ml.batch_deployments.list(shop.endpoint)] == ["model-1"]
    twice(lambda: shop.set({}))
    assert shop.ensure() == EndpointTraffic()


def test_a_deployment_that_cannot_start_gives_the_end_of_its_log(shop: Shop) -> None:
    shop.ensure()
    model = shop.model("1", "no number")
    failed = twice(lambda: shop.deploy(model))
    assert failed.state == "failed"
    assert "ValueError: could not convert string to float" in (failed.message or "")


def test_a_deployment_of_others_stands_in_the_way_and_is_not_deleted(shop: Shop) -> None:
    shop.ensure()
    model = shop.model("1", "2")
    shop.deploy(model)
    found = shop.clients.ml.online_deployments.get("model-1", shop.endpoint)
    found.tags = {}
    shop.clients.ml.online_deployments.begin_create_or_update(found).result()
    with pytest.raises(RolloutImpossible, match="no rollout of this model made"):
        shop.deploy(model)
    request = DeleteDeployments(endpoint=shop.endpoint, deployments=["model-1"])
    delete_deployments(shop.clients, request)
    assert shop.clients.ml.online_deployments.get("model-1", shop.endpoint)


def test_one_rollout_has_an_endpoint_and_the_newest_is_next(shop: Shop) -> None:
    clients, endpoint = shop.clients, shop.endpoint

    def claim(version: int) -> tuple[bool, str | None, str | None]:
        rollout = rollout_id(endpoint, str(version))
        request = ClaimEndpoint(rollout=rollout, endpoint=endpoint, version=version)
        found = twice(lambda: claim_endpoint(clients, request))
        return found.granted, found.holder, found.superseded_by

    first, third = rollout_id(endpoint, "1"), rollout_id(endpoint, "3")
    assert claim(1) == (True, None, None)
    assert superseding_rollout(clients, endpoint, first) is None
    assert claim(3) == (False, first, None)
    assert claim(2) == (False, None, third), "a newer one is there"
    assert superseding_rollout(clients, endpoint, first) == third
    release_endpoint(
        clients, ReleaseEndpoint(rollout=third, endpoint=endpoint, outcome="superseded")
    )
    assert (endpoint, first) in list(holders(clients)), "it was not the holder's release"
    twice(
        lambda: release_endpoint(
            clients, ReleaseEndpoint(rollout=first, endpoint=endpoint, outcome="rolled_back")
        )
    )
    assert claim(3) == (True, None, None)


def test_the_first_decision_about_a_step_counts_and_a_rollback_before_all(shop: Shop) -> None:
    shop.ensure()
    rollout = rollout_id(shop.endpoint, "1")

    def decide(verb: str, step: int, by: str) -> None:
        decision = {"verb": verb, "by": by, "reason": "because", "step": step}
        record_decision(shop.clients, rollout, Decision.model_validate(decision))

    def decision(step: int) -> Decision | None:
        request = ReadDirections(rollout=rollout, endpoint=shop.endpoint, step=step)
        return read_directions(shop.clients, request).decision

    decide("promote", 0, "ada")
    decide("promote", 0, "grace")
    found = decision(0)
    assert found is not None
    assert (found.verb, found.by) == ("promote", "ada")
    assert decision(1) is None, "it was about another step"
    decide("rollback", 1, "grace")
    assert [getattr(decision(step), "verb", None) for step in (0, 1, 2)] == ["rollback"] * 3
