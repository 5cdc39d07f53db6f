"""An endpoint as the orchestrator `rollout` sees it: simulated, under a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrations.configuration.deploy import BatchDeploy, OnlineDeploy
from orchestrations.contracts.base import Contract, Done
from orchestrations.contracts.notifications import Notification, PublishNotification
from orchestrations.contracts.rollouts import (
    AlertRolloutHeld,
    AnswerMeasurement,
    AnswerMeasurements,
    ChampionChange,
    Decision,
    DeploymentState,
    Directions,
    EndpointClaim,
    EndpointTraffic,
    MeasureAnswers,
    Observation,
    RecordRollout,
    RolloutInput,
    RolloutRequest,
    RolloutStatus,
    SmokeTest,
    TestDeployment,
)
from orchestrations.contracts.runs import Model
from orchestrations.errors import DeploymentRejected, LandfallError
from orchestrations.platform.waiting import WAKE_UP
from orchestrations.rollout.rollout import rollout
from tests.simulation.task_hub import HubInstance
from tests.unit.orchestrations.driver import DOWN_SECONDS, START, Driver, answered_by
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


def agreeing(_: Endpoint, __: MeasureAnswers) -> AnswerMeasurement:
    return AnswerMeasurement(answers=100, without=0, value=0.9, compared=100, reference=0.9)


def healthy(_: Endpoint) -> Observation:
    return Observation(requests=100, failures=0, latency_p95_ms=100)


@dataclass
class Endpoint:
    """An endpoint that serves model 1, the record of its rollout, and people's decisions."""

    observe: Callable[[Endpoint], Observation] = healthy
    measure: Callable[[Endpoint, MeasureAnswers], AnswerMeasurement] = agreeing
    measured: list[MeasureAnswers] = field(default_factory=list[MeasureAnswers])
    deploy: OnlineDeploy | BatchDeploy = DEPLOY
    smoke_seconds: float = 0
    at_once: bool = False
    champion: ChampionChange | None = None
    traffic: EndpointTraffic = field(
        default_factory=lambda: EndpointTraffic(traffic={"model-1": 100})
    )
    deployments: set[str] = field(default_factory=lambda: {"model-1"})
    ready_after: float = 60
    provisioning_fails: bool = False
    refuse: dict[str, LandfallError] = field(default_factory=dict[str, LandfallError])
    outages: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    held_until: float = 0
    superseded_at: float | None = None
    decisions: list[tuple[float, Decision]] = field(default_factory=list[tuple[float, Decision]])
    released: bool = False
    outcomes: list[RecordRollout] = field(default_factory=list[RecordRollout])
    notified: list[str] = field(default_factory=list[str])
    told: list[Notification] = field(default_factory=list[Notification])
    alerts: list[AlertRolloutHeld] = field(default_factory=list[AlertRolloutHeld])
    champion_changes: list[ChampionChange] = field(default_factory=list[ChampionChange])
    calls: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    set_to: list[tuple[float, EndpointTraffic]] = field(
        default_factory=list[tuple[float, EndpointTraffic]]
    )
    asked_at: float | None = None
    smoked_at: float | None = None

    def __post_init__(self) -> None:
        self.driver = Driver(
            activities=answered_by(self._answer), orchestrators={"rollout": rollout}
        )

    @property
    def seconds(self) -> float:
        return self.driver.seconds

    def _answer(self, name: str, request: Any) -> Contract:  # noqa: C901, PLR0912 - one case an activity
        self.calls.append((self.seconds, name))
        first, last = self.outages.get(name, (0.0, 0.0))
        if first <= self.seconds < last:
            raise ConnectionError(f"{name} is unreachable")
        if name in self.refuse:
            raise self.refuse[name]
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
                return self.observe(self)
            case "read_directions":
                made = [
                    decision
                    for at, decision in self.decisions
                    if at <= self.seconds
                    and (decision.verb == "rollback" or decision.step == request.step)
                ]
                by = "rollout-digits-live-3" if superseded else None
                return Directions(decision=made[0] if made else None, superseded_by=by)
            case "measure_answers":
                self.measured.append(request)
                return AnswerMeasurements(guards=[self.measure(self, request)])
            case "delete_deployments":
                for each in request.deployments:
                    assert each not in {**self.traffic.traffic, **self.traffic.mirror}
                    self.deployments.discard(each)
            case "record_rollout":
                self.outcomes.append(request)
            case "change_champion":
                self.champion_changes.append(request.change)
            case "alert_rollout_held":
                self.alerts.append(request)
            case "release_endpoint":
                self.released = True
            case "publish_notification":
                assert isinstance(request, PublishNotification)
                self.notified.append(request.notification.kind)
                self.told.append(request.notification)
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
        assert request.deadline is not None
        deadline = (request.deadline - START).total_seconds()
        if self.smoked_at is None:
            self.smoked_at = self.seconds
        elif self.seconds > deadline:
            raise DeploymentRejected("the smoke job was not over in time")
        elif "test_deployment" not in self.outages:  # they extend the limit
            assert deadline - self.smoked_at == pytest.approx(30 * 60, abs=DOWN_SECONDS + 1)
        is_over = self.seconds >= self.smoked_at + self.smoke_seconds
        return SmokeTest(job=None if is_over else "smoke-digits-live-model-2")

    def roll_out(self) -> RolloutStatus:
        instance = self.start()
        self.driver.run()
        assert instance.error is None
        assert self.released
        return RolloutStatus.from_dict(instance.output)

    def start(self) -> HubInstance:
        request = RolloutRequest(
            pipeline=PIPELINE.model_copy(update={"deploy": self.deploy}),
            model=MODEL,
            run="digits-0123456789abcdef-1",
            at_once=self.at_once,
            champion=self.champion,
        )
        return self.driver.start("rollout", ID, RolloutInput(request=request).to_dict())

    def decide(self, at: float, verb: Any, step: int) -> None:
        decision = Decision(verb=verb, by="ada", reason="because", step=step)
        self.decisions.append((at, decision))
        self.driver.raise_event_at(at, ID, WAKE_UP)


def batch_endpoint(**changes: Any) -> Endpoint:
    def observe(_: Endpoint) -> Observation:
        return Observation()

    given: dict[str, Any] = {"observe": observe, "deploy": BATCH, "smoke_seconds": 600}
    return Endpoint(**given | changes)
