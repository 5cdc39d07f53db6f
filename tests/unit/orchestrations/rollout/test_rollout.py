"""The orchestrator `rollout` on the pure engine, against a simulated endpoint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from orchestrations.configuration.deploy import OnlineDeploy
from orchestrations.contracts.rollouts import (
    AnswerMeasurement,
    EndpointTraffic,
    MeasureAnswers,
    Observation,
)
from orchestrations.errors import DeploymentRejected
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.examples import PIPELINE
from tests.unit.orchestrations.rollout.simulated_endpoint import (
    BATCH,
    DEPLOY,
    ID,
    NEW,
    Endpoint,
    agreeing,
    batch_endpoint,
)


def test_a_healthy_model_gets_all_traffic_step_by_step() -> None:
    endpoint = Endpoint()
    status = endpoint.roll_out()
    assert status.state == "finished"
    assert [each for _, each in endpoint.set_to] == [
        EndpointTraffic(traffic={"model-1": 100}, mirror={NEW: 20}),
        EndpointTraffic(traffic={"model-1": 90, NEW: 10}),
        EndpointTraffic(traffic={NEW: 100}),
    ]
    (mirrored, canary, full) = [at for at, _ in endpoint.set_to]
    assert canary - mirrored >= 30 * 60
    assert full - canary >= 60 * 60
    assert endpoint.seconds >= full + 3600 + 24 * 3600
    assert endpoint.deployments == {NEW}, "the previous one went when its time was over"
    assert endpoint.notified == ["deploying", "deployed"]
    assert [(each.outcome, each.serving) for each in endpoint.outcomes] == [("live", NEW)]
    states = dict.fromkeys(each["state"] for each in endpoint.driver.instances[ID].statuses)
    assert [*states] == ["waiting", "deploying", "testing", "baking", "live", "finished"]


def test_the_first_model_of_an_endpoint_gets_all_traffic_at_once() -> None:
    endpoint = Endpoint(traffic=EndpointTraffic(), deployments=set())
    assert endpoint.roll_out().state == "finished"
    assert [each for _, each in endpoint.set_to] == [EndpointTraffic(traffic={NEW: 100})]
    assert endpoint.seconds < 2 * 3600, "there is no previous deployment to keep"


def failing_with_traffic(endpoint: Endpoint) -> Observation:
    failures = 5 if endpoint.traffic.traffic.get(NEW) else 0
    return Observation(requests=100, failures=failures)


def slow_when_mirrored(_: Endpoint) -> Observation:
    return Observation(requests=100, failures=0, latency_p95_ms=900)


@pytest.mark.parametrize(
    ("observe", "steps", "reason"),
    [
        (failing_with_traffic, 2, "error_rate"),
        (slow_when_mirrored, 1, "latency_p95_ms"),
    ],
)
def test_a_broken_guard_restores_the_previous_traffic(
    observe: Callable[[Endpoint], Observation], steps: int, reason: str
) -> None:
    endpoint = Endpoint(observe=observe)
    status = endpoint.roll_out()
    assert status.state == "rolled_back"
    assert reason in (status.reason or "")
    assert len(endpoint.set_to) == steps + 1
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})
    assert endpoint.deployments == {"model-1"}
    assert endpoint.notified == ["deploying", "rolled_back"]
    assert [(each.outcome, each.serving) for each in endpoint.outcomes] == [
        ("rolled_back", "model-1")
    ]


ANSWERING = OnlineDeploy.model_validate(
    {
        **DEPLOY.model_dump(),
        "guards": {"answers": [{"metric": "mean", "field": "price", "max_change": 0.1}]},
    }
)


def drifting_with_traffic(endpoint: Endpoint, _: MeasureAnswers) -> AnswerMeasurement:
    value = 0.5 if endpoint.traffic.traffic.get(NEW) else 0.9
    return AnswerMeasurement(answers=100, without=0, value=value, compared=100, reference=0.9)


def test_a_model_whose_answers_differ_is_rolled_back_however_fast_it_answers() -> None:
    endpoint = Endpoint(deploy=ANSWERING, measure=drifting_with_traffic)
    status = endpoint.roll_out()
    assert status.state == "rolled_back"
    assert "mean of price is 0.5" in (status.reason or "")
    assert status.answers == {"mean of price": 0.5}
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})
    assert len(endpoint.set_to) == 3, "the copies of requests were answered alike"
    assert endpoint.measured[0].current == ["model-1"]
    assert endpoint.measured[0].container == PIPELINE.source.container
    assert endpoint.measured[0].since < endpoint.measured[-1].since, "each step by itself"


def test_a_model_that_answers_alike_goes_live() -> None:
    endpoint = Endpoint(deploy=ANSWERING)
    assert endpoint.roll_out().state == "finished"
    (_, canary, full) = [START + timedelta(seconds=at) for at, _ in endpoint.set_to]
    assert all(each.since < full for each in endpoint.measured), "then there is no other model"
    assert any(each.since >= canary for each in endpoint.measured)


def test_a_step_waits_for_answers_that_come_late() -> None:
    def late(endpoint: Endpoint, request: MeasureAnswers) -> AnswerMeasurement:
        found = agreeing(endpoint, request)
        is_there = endpoint.seconds >= 6 * 3600
        return found if is_there else found.model_copy(update={"answers": 3})

    endpoint = Endpoint(deploy=ANSWERING, measure=late)
    assert endpoint.roll_out().state == "finished"
    assert endpoint.set_to[1][0] >= 6 * 3600


def test_without_requests_a_step_goes_on_until_a_person_promotes_it() -> None:
    endpoint = Endpoint(observe=lambda _: Observation())
    for step, at in enumerate((86_400, 2 * 86_400, 3 * 86_400)):
        endpoint.decide(at, "promote", step)
    assert endpoint.roll_out().state == "finished"
    assert [round(at / 86_400) for at, _ in endpoint.set_to] == [0, 1, 2]
    assert endpoint.driver.instances[ID].generations > 3, "a long wait continues as new"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Endpoint(superseded_at=3600), id="while it bakes"),
        pytest.param(lambda: Endpoint(held_until=3600, superseded_at=1800), id="while it waits"),
        pytest.param(lambda: batch_endpoint(superseded_at=200), id="while its smoke job runs"),
    ],
)
def test_a_newer_model_supersedes(make: Callable[[], Endpoint]) -> None:
    endpoint = make()
    assert endpoint.roll_out().state == "superseded"
    assert not (endpoint.held_until and endpoint.set_to), "it never had the endpoint"
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})
    assert endpoint.deployments == {"model-1"}


def test_a_newer_model_ends_the_time_of_the_previous_deployment() -> None:
    endpoint = Endpoint(superseded_at=4 * 3600)
    assert endpoint.roll_out().state == "finished"
    assert endpoint.deployments == {NEW}
    assert endpoint.seconds < 6 * 3600


def test_it_waits_for_the_endpoint() -> None:
    endpoint = Endpoint(held_until=2 * 3600)
    assert endpoint.roll_out().state == "finished"
    assert endpoint.set_to[0][0] >= 2 * 3600


def test_a_deployment_that_cannot_be_provisioned_is_rolled_back() -> None:
    endpoint = Endpoint(provisioning_fails=True)
    status = endpoint.roll_out()
    assert status.state == "rolled_back"
    assert status.reason == "DeploymentRejected: init() raised KeyError"
    assert endpoint.deployments == {"model-1"}
    endless = Endpoint(ready_after=10 * 86_400)
    assert "DeadlineExceeded" in (endless.roll_out().reason or "")


@pytest.mark.parametrize("make", [Endpoint, batch_endpoint])
def test_a_failed_smoke_test_is_rolled_back(make: Callable[..., Endpoint]) -> None:
    endpoint = make(refuse={"test_deployment": DeploymentRejected("it answered with 424")})
    status = endpoint.roll_out()
    assert status.state == "rolled_back"
    assert status.reason == "DeploymentRejected: it answered with 424"
    assert endpoint.deployments == {"model-1"}
    assert [each for _, each in endpoint.set_to] == [EndpointTraffic(traffic={"model-1": 100})]


WATCHED = BATCH.model_copy(update={"bake_minutes": 24 * 60})


def jobs_fail_after_ten_hours(endpoint: Endpoint) -> Observation:
    return Observation(requests=5, failures=2 if endpoint.seconds > 10 * 3600 else 0)


def test_a_batch_deployment_whose_jobs_fail_is_the_default_no_longer() -> None:
    endpoint = batch_endpoint(deploy=WATCHED, observe=jobs_fail_after_ten_hours)
    status = endpoint.roll_out()
    assert status.state == "rolled_back"
    assert status.reason == "40.0% of 5 jobs failed; deploy.guards.failed_jobs is 0.0%"
    assert [each for _, each in endpoint.set_to] == [
        EndpointTraffic(traffic={NEW: 100}),
        EndpointTraffic(traffic={"model-1": 100}),
    ]
    assert endpoint.seconds < 11 * 3600
    assert endpoint.deployments == {"model-1"}


def test_a_batch_deployment_is_live_when_its_jobs_were_watched() -> None:
    def succeeding(_: Endpoint) -> Observation:
        return Observation(requests=1)

    fine = batch_endpoint(deploy=WATCHED, observe=succeeding)
    assert fine.roll_out().state == "finished"
    assert fine.seconds >= (24 + BATCH.keep_previous_hours) * 3600


@pytest.mark.parametrize(
    ("make", "at"),
    [
        pytest.param(Endpoint, 1800, id="while it bakes"),
        pytest.param(Endpoint, 4 * 3600, id="when it is live"),
        pytest.param(batch_endpoint, 200, id="while its smoke job runs"),
        pytest.param(batch_endpoint, 3600, id="when it is the default"),
    ],
)
def test_a_person_rolls_back(make: Callable[[], Endpoint], at: float) -> None:
    endpoint = make()
    endpoint.decide(at, "rollback", 0)
    status = endpoint.roll_out()
    assert (status.state, status.reason) == ("rolled_back", "rolled back by ada: because")
    assert endpoint.set_to[-1][0] - at < 60, "the event woke it up"
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})
    assert endpoint.deployments == {"model-1"}
    assert endpoint.outcomes[-1].serving == "model-1"
