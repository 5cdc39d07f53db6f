"""The orchestrator `rollout` on the pure engine, against a simulated endpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from orchestrations.activities import ACTIVITIES, FAILURE_KEY, RESULT_KEY
from orchestrations.contracts.base import Contract, Done, Failure
from orchestrations.contracts.models import Model
from orchestrations.contracts.notifications import PublishNotification
from orchestrations.contracts.rollouts import (
    Decision,
    DeploymentState,
    EndpointClaim,
    EndpointTraffic,
    Observation,
    RecordRollout,
    RolloutInput,
    RolloutRequest,
    RolloutStatus,
    SmokeTest,
    TestDeployment,
)
from orchestrations.errors import DeploymentRejected
from orchestrations.interruptible_timer import WAKE_UP
from orchestrations.pipeline import BatchDeploy, OnlineDeploy
from orchestrations.retrying import describe
from orchestrations.rollout import rollout
from tests.unit.orchestrations.driver import START, Driver, Instance
from tests.unit.orchestrations.examples import PIPELINE

ID = "rollout-digits-live-2"
NEW = "model-2"
DEPLOY = OnlineDeploy.model_validate(
    {
        "endpoint": "digits-live",
        "instance_type": "Standard_DS3_v2",
        "steps": [
            {"mirror": 20, "bake_minutes": 30},
            {"traffic": 10, "bake_minutes": 60},
            {"traffic": 100, "bake_minutes": 60},
        ],
        "guards": {"error_rate": 0.01, "latency_p95_ms": 400},
    }
)
BATCH = BatchDeploy.model_validate(
    {
        "kind": "batch",
        "endpoint": "digits-live",
        "compute": "cpu-cluster",
        "guards": {"smoke_minutes": 30},
        "keep_previous_hours": 6,
    }
)
MODEL = Model(name="digits", version="2", path="azureml://…")


def healthy(_: Endpoint) -> Observation:
    return Observation(requests=100, failures=0, latency_p95_ms=100)


@dataclass
class Endpoint:
    """An endpoint with model 1, the record of who has it, and what people decided."""

    observe: Callable[[Endpoint], Observation] = healthy
    deploy: OnlineDeploy | BatchDeploy = DEPLOY
    smoke_seconds: float = 0
    traffic: EndpointTraffic = field(
        default_factory=lambda: EndpointTraffic(traffic={"model-1": 100})
    )
    deployments: set[str] = field(default_factory=lambda: {"model-1"})
    ready_after: float = 60
    provisioning_fails: bool = False
    refuse: dict[str, Failure] = field(default_factory=dict[str, Failure])
    outages: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    held_until: float = 0
    superseded_at: float | None = None
    decisions: list[tuple[float, Decision]] = field(default_factory=list[tuple[float, Decision]])
    released: bool = False
    outcomes: list[RecordRollout] = field(default_factory=list[RecordRollout])
    notified: list[str] = field(default_factory=list[str])
    set_to: list[tuple[float, EndpointTraffic]] = field(
        default_factory=list[tuple[float, EndpointTraffic]]
    )
    asked_at: float | None = None
    smoked_at: float | None = None

    def __post_init__(self) -> None:
        self.driver = Driver(
            activities={name: self._activity(name, each) for name, each in ACTIVITIES.items()},
            orchestrators={"rollout": rollout},
        )

    @property
    def seconds(self) -> float:
        return (self.driver.now - START).total_seconds()

    def _activity(self, name: str, request_type: type[Contract]) -> Any:
        def run(given: Any) -> Any:
            request = request_type.from_dict(given)
            first, last = self.outages.get(name, (0.0, 0.0))
            if first <= self.seconds < last:
                raise ConnectionError(f"{name} is unreachable")
            if name in self.refuse:
                return {FAILURE_KEY: self.refuse[name].to_dict()}
            return {RESULT_KEY: self._answer(name, request).to_dict()}

        return run

    def _answer(self, name: str, request: Any) -> Contract:  # noqa: C901, PLR0912 - one case an activity
        superseded = self.superseded_at is not None and self.seconds >= self.superseded_at
        assert getattr(request, "kind", self.deploy.kind) == self.deploy.kind
        match name:
            case "claim_endpoint":
                if superseded:
                    return EndpointClaim(granted=False, superseded_by="rollout-digits-live-3")
                is_free = self.seconds >= self.held_until
                holder = None if is_free else "rollout-digits-live-1"
                return EndpointClaim(granted=is_free, holder=holder)
            case "ensure_endpoint":
                return self.traffic
            case "ensure_deployment":
                return self._deployment(request.deployment)
            case "test_deployment":
                return self._smoke_test(request)
            case "set_traffic":
                named = {**request.traffic.traffic, **request.traffic.mirror}
                assert set(named) <= self.deployments
                self.traffic = request.traffic
                self.set_to.append((self.seconds, request.traffic))
            case "observe_rollout":
                measured = self.observe(self)
                made = [
                    decision
                    for at, decision in self.decisions
                    if at <= self.seconds
                    and (decision.verb == "rollback" or decision.step == request.step)
                ]
                by = "rollout-digits-live-3" if superseded else None
                return measured.model_copy(
                    update={"decision": made[0] if made else None, "superseded_by": by}
                )
            case "delete_deployments":
                for each in request.deployments:
                    assert each not in {**self.traffic.traffic, **self.traffic.mirror}
                    self.deployments.discard(each)
            case "record_rollout":
                self.outcomes.append(request)
            case "release_endpoint":
                self.released = True
            case "publish_notification":
                assert isinstance(request, PublishNotification)
                self.notified.append(request.notification.kind)
            case _:
                pass
        return Done()

    def _deployment(self, name: str) -> DeploymentState:
        self.deployments.add(name)
        if self.asked_at is None:
            self.asked_at = self.seconds
        if self.seconds < self.asked_at + self.ready_after:
            return DeploymentState(state="provisioning")
        if self.provisioning_fails:
            return DeploymentState(state="failed", message="init() raised KeyError")
        return DeploymentState(state="ready")

    def _smoke_test(self, request: TestDeployment) -> SmokeTest:
        if self.deploy.kind == "online":
            return SmokeTest()
        assert request.model == MODEL
        if self.smoked_at is None:
            self.smoked_at = self.seconds
        assert request.deadline is not None
        assert (request.deadline - START).total_seconds() - self.smoked_at == pytest.approx(
            30 * 60, abs=1
        )
        is_over = self.seconds >= self.smoked_at + self.smoke_seconds
        return SmokeTest(job=None if is_over else "smoke-digits-live-model-2")

    def roll_out(self) -> RolloutStatus:
        instance = self.start()
        self.driver.run()
        assert instance.error is None
        assert self.released
        return RolloutStatus.from_dict(instance.output)

    def start(self) -> Instance:
        request = RolloutRequest(
            pipeline=PIPELINE.model_copy(update={"deploy": self.deploy}),
            model=MODEL,
            run="digits-0123456789abcdef-1",
        )
        return self.driver.start("rollout", ID, RolloutInput(request=request).to_dict())

    def decide(self, at: float, verb: Any, step: int) -> None:
        decision = Decision(verb=verb, by="ada", reason="because", step=step)
        self.decisions.append((at, decision))
        self.driver.at(
            START + timedelta(seconds=at),
            lambda: self.driver.instances[ID].raise_event(WAKE_UP),
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


def test_without_requests_a_step_goes_on_until_a_person_promotes_it() -> None:
    endpoint = Endpoint(observe=lambda _: Observation())
    for step, at in enumerate((3 * 86_400, 4 * 86_400, 5 * 86_400)):
        endpoint.decide(at, "promote", step)
    assert endpoint.roll_out().state == "finished"
    assert [round(at / 86_400) for at, _ in endpoint.set_to] == [0, 3, 4]
    assert endpoint.driver.instances[ID].generations > 3, "a long wait continues as new"


def test_a_newer_model_supersedes_while_baking_and_while_waiting() -> None:
    baking = Endpoint(superseded_at=3600)
    assert baking.roll_out().state == "superseded"
    assert baking.traffic == EndpointTraffic(traffic={"model-1": 100})
    assert baking.deployments == {"model-1"}
    waiting = Endpoint(held_until=3600, superseded_at=1800)
    assert waiting.roll_out().state == "superseded"
    assert waiting.set_to == []
    assert waiting.deployments == {"model-1"}


def test_a_newer_model_ends_the_time_of_the_previous_deployment() -> None:
    endpoint = Endpoint(superseded_at=4 * 3600)
    assert endpoint.roll_out().state == "finished"
    assert endpoint.deployments == {NEW}
    assert endpoint.seconds < 6 * 3600


def test_it_waits_for_the_endpoint() -> None:
    endpoint = Endpoint(held_until=6 * 3600)
    assert endpoint.roll_out().state == "finished"
    assert endpoint.set_to[0][0] >= 6 * 3600


def test_a_deployment_that_cannot_be_provisioned_is_rolled_back() -> None:
    endpoint = Endpoint(provisioning_fails=True)
    status = endpoint.roll_out()
    assert (status.state, status.reason) == ("rolled_back", "init() raised KeyError")
    assert endpoint.deployments == {"model-1"}
    endless = Endpoint(ready_after=10 * 86_400)
    assert "DeadlineExceeded" in (endless.roll_out().reason or "")


def test_a_failed_smoke_request_is_rolled_back() -> None:
    refusal = describe(DeploymentRejected("it answered with 424"))
    endpoint = Endpoint(refuse={"test_deployment": refusal})
    status = endpoint.roll_out()
    assert status.reason == "DeploymentRejected: it answered with 424"
    assert [each for _, each in endpoint.set_to] == [EndpointTraffic(traffic={"model-1": 100})]


def batch_endpoint(**changes: Any) -> Endpoint:
    def observe(_: Endpoint) -> Observation:
        return Observation()

    given: dict[str, Any] = {"observe": observe, "deploy": BATCH, "smoke_seconds": 600}
    return Endpoint(**given | changes)


def test_a_batch_deployment_is_the_default_after_its_smoke_job() -> None:
    endpoint = batch_endpoint()
    assert endpoint.roll_out().state == "finished"
    ((at, traffic),) = endpoint.set_to
    assert traffic == EndpointTraffic(traffic={NEW: 100})
    assert endpoint.smoked_at is not None
    assert at >= endpoint.smoked_at + 600
    assert at + 6 * 3600 <= endpoint.seconds < at + 7 * 3600, "the old one is kept for its time"
    assert endpoint.deployments == {NEW}
    assert endpoint.notified == ["deploying", "deployed"]
    assert [(each.outcome, each.serving) for each in endpoint.outcomes] == [("live", NEW)]


def test_a_batch_deployment_that_fails_its_smoke_job_never_is_the_default() -> None:
    refusal = describe(DeploymentRejected("smoke job smoke-digits-live-model-2 is failed"))
    endpoint = batch_endpoint(refuse={"test_deployment": refusal})
    status = endpoint.roll_out()
    assert (status.state, endpoint.deployments) == ("rolled_back", {"model-1"})
    assert "smoke-digits-live-model-2 is failed" in (status.reason or "")
    assert [each for _, each in endpoint.set_to] == [EndpointTraffic(traffic={"model-1": 100})]


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


def test_a_newer_model_supersedes_a_batch_deployment_during_its_smoke_job() -> None:
    endpoint = batch_endpoint(superseded_at=200)
    assert endpoint.roll_out().state == "superseded"
    assert endpoint.deployments == {"model-1"}


def test_an_outage_of_the_endpoint_only_delays_a_rollback() -> None:
    endpoint = Endpoint(outages={"set_traffic": (2000, 12 * 3600)})
    endpoint.decide(2100, "rollback", 1)
    assert endpoint.roll_out().state == "rolled_back"
    assert endpoint.set_to[-2][1].traffic[NEW] == 10
    assert endpoint.set_to[-1][0] >= 12 * 3600
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})


def test_an_outage_of_the_metrics_does_not_take_a_live_model_back() -> None:
    baked = timedelta(minutes=30 + 60 + 60 + 30).total_seconds()
    outage = (baked, baked + timedelta(hours=6).total_seconds())
    endpoint = Endpoint(outages={"observe_rollout": outage})
    assert endpoint.roll_out().state == "finished"
    assert endpoint.traffic == EndpointTraffic(traffic={NEW: 100})
    assert endpoint.deployments == {NEW}


def test_a_rollback_never_sets_the_new_deployment_again() -> None:
    found = EndpointTraffic(traffic={"model-1": 90, NEW: 10})
    endpoint = Endpoint(observe=failing_with_traffic, traffic=found)
    endpoint.deployments.add(NEW)
    assert endpoint.roll_out().state == "rolled_back"
    assert endpoint.traffic == EndpointTraffic(traffic={"model-1": 100})


def test_statuses_show_the_way() -> None:
    endpoint = Endpoint()
    endpoint.roll_out()
    states = [status["state"] for status in endpoint.driver.instances[ID].statuses]
    assert list(dict.fromkeys(states)) == [
        "waiting",
        "deploying",
        "testing",
        "baking",
        "live",
        "finished",
    ]
