"""A rollout: the traffic of an endpoint moves to one model version, or back.

Most activities are `QUICK`: `orchestrations.rollout.rollout` repeats them itself, with growing
delays.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from orchestrations.configuration.approve import ApprovedStep
from orchestrations.configuration.deploy import AnswerGuard, EndpointKind, Windows
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import ActivityRequest, Contract, Done, QuickRequest, Traceparent
from orchestrations.contracts.runs import Model

RolloutState = Literal[
    "waiting",
    "deploying",
    "testing",
    "baking",
    "live",
    "rolling_back",
    "finished",
    "rolled_back",
    "superseded",
    "failed",
]
RolloutEnding = Literal["rolled_back", "superseded", "failed"]
RolloutOutcome = Literal["live", "rolled_back", "superseded", "failed"]
Verb = Literal["promote", "rollback"]
EndpointEffect = Literal["none", "serving", "kept-deployment", "new-deployment"]
"""What a change of the champion does at the endpoint. `none`: the pipeline has no endpoint.
`serving`: the version has all traffic already. Otherwise it gets the traffic: its deployment
exists, or has to be created first."""
Traffic = dict[str, int]
"""Percent of the live requests by deployment."""


Kind = Annotated[EndpointKind, Field(default="online", exclude_if=lambda it: it == "online")]
"""Omitted for online endpoints, so that their histories do not change."""


class ChampionChange(Contract):
    """A person's change of the champion, which a rollout completes at its endpoint."""

    verb: Verb
    version: str
    """The version that is promoted, or that is rolled back."""
    at: datetime
    by: str
    reason: str


class RolloutRequest(Contract):
    """The model to roll out: the body of a message on the queue `rollouts`."""

    pipeline: Pipeline
    """A pipeline that has `deploy`."""
    model: Model
    run: str
    """The run that registered the model."""
    traceparent: Traceparent = None
    """The span of that run."""
    # Omitted for the rollouts that runs start, so that their histories do not change.
    attempt: int = Field(default=0, ge=0, exclude_if=lambda it: it == 0)
    """0 if the run started it; else its number among the endpoint's rollouts that people started.
    """
    at_once: bool = Field(default=False, exclude_if=lambda it: not it)
    """Whether the model gets all traffic after its smoke test, without steps and guards."""
    champion: ChampionChange | None = Field(default=None, exclude_if=lambda it: it is None)
    """The change of the champion that the rollout belongs to."""
    deployment: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The deployment that gets the traffic. None: it is named after the model version only."""


class EndpointTraffic(Contract):
    """How an endpoint divides its requests. A batch endpoint's default deployment has 100."""

    traffic: Traffic = Field(default_factory=dict[str, int])
    mirror: Traffic = Field(default_factory=dict[str, int])


class Decision(Contract):
    """A person's decision about a rollout; the first one per state counts."""

    verb: Verb
    by: str
    reason: str
    step: int
    """The rollout's step at that time, -1 before the first one: the decision holds for it only."""


class RolloutProgress(Contract):
    """The state of a rollout, kept over `continue_as_new`."""

    state: RolloutState
    since: datetime
    step: int = 0
    """The current step, from 0; the number of steps when the rollout is live."""
    previous: EndpointTraffic | None = None
    """The traffic before the rollout, which a rollback restores."""
    ending: RolloutEnding | None = None
    """The rollout's outcome, set while the previous traffic is being restored."""
    reason: str | None = None
    """The reason for `ending`."""
    announced: bool = False
    """Whether people were told of the state, and its records were written."""
    unknown_since: datetime | None = None
    """When the current outage began."""
    alerted: bool = False
    """Whether operators were alerted to that outage."""
    outage_seconds: float = 0
    """The length of earlier outages in this state: its time limits are extended by it."""
    first_seen: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
    """When the deployment, or its smoke job, was first seen and not over. Its time limit begins
    then: before, the host may have been down for hours."""
    approvals: dict[ApprovedStep, str] = Field(default={}, exclude_if=lambda it: not it)
    """Before what people were asked → their answer in a sentence; empty while it is open."""


class RolloutInput(Contract):
    """Input of `rollout`, also when it continues as new while it waits."""

    request: RolloutRequest
    progress: RolloutProgress | None = None


class Unknown(Contract):
    """What a rollout cannot know at the moment."""

    since: datetime
    what: str


class RolloutStatus(Contract):
    """Custom status of `rollout`, and the document of `GET /api/rollouts/{id}`."""

    id: str
    pipeline: str
    run: str
    model: Model
    endpoint: str
    deployment: str
    state: RolloutState
    since: datetime
    step: int
    steps: int
    traffic: Traffic | None = None
    """The last traffic that was set."""
    mirror: Traffic | None = None
    requests: float | None = None
    """The number of requests since the step began."""
    error_rate: float | None = None
    latency_p95_ms: float | None = None
    # Omitted if empty, so that the histories of other pipelines do not change.
    answers: dict[str, float] = Field(
        default_factory=dict[str, float], exclude_if=lambda it: not it
    )
    """Metrics of the model's answers in the step, by their guards' labels."""
    reason: str | None = None
    at_once: bool = Field(default=False, exclude_if=lambda it: not it)
    unknown: Unknown | None = Field(default=None, exclude_if=lambda it: it is None)
    """The outage that the rollout waits for; the endpoint's traffic stays as it is."""
    approval: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The question to people that the rollout waits for."""
    rolls_back: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The version that a person took out of service by it; only in lists."""


class Window(Contract):
    """Whether traffic may move to a new model."""

    closed_until: datetime | None
    """None: it may move now."""


class FindWindow(QuickRequest[Window]):
    """Input of `find_window`."""

    windows: Windows
    at: datetime


class EndpointClaim(Contract):
    """The right to change an endpoint."""

    granted: bool
    holder: str | None = None
    """The rollout that holds the endpoint, if the claim was not granted."""
    superseded_by: str | None = None
    """The rollout of a newer model of the endpoint."""


class ClaimEndpoint(QuickRequest[EndpointClaim]):
    """Input of `claim_endpoint`."""

    rollout: str
    endpoint: str
    version: int
    """The model's version: a greater one supersedes a smaller one."""


class ReleaseEndpoint(QuickRequest[Done]):
    """Input of `release_endpoint`: the rollout has ended, and its outcome is recorded."""

    rollout: str
    endpoint: str
    outcome: RolloutOutcome


class ChangeChampion(QuickRequest[Done]):
    """Input of `change_champion`."""

    pipeline: Pipeline
    change: ChampionChange
    serving: str
    """The version that is to be the champion."""


class EnsureEndpoint(QuickRequest[EndpointTraffic]):
    """Input of `ensure_endpoint`."""

    endpoint: str
    kind: Kind = "online"
    pipeline: str


class DeploymentState(Contract):
    """How far the provisioning of a deployment is."""

    state: Literal["provisioning", "ready", "failed"]
    message: str | None = None
    """Why it failed, with the last lines of its log."""


class EnsureDeployment(QuickRequest[DeploymentState]):
    """Input of `ensure_deployment`."""

    rollout: str
    deployment: str
    request: RolloutRequest


class SmokeTest(Contract):
    """The progress of a new deployment's test. The test has passed when `job` is None."""

    job: str | None = None
    """The smoke job that has not ended yet."""


class TestDeployment(QuickRequest[SmokeTest]):
    """Input of `test_deployment`: send a smoke request, or start a smoke job."""

    __test__ = False  # pytest would collect a class of this name

    endpoint: str
    deployment: str
    pipeline: Pipeline
    # Omitted for online endpoints, so that their histories do not change.
    model: Model | None = Field(default=None, exclude_if=lambda it: it is None)
    """Set for a batch deployment: a file of the model's dataset is scored."""
    deadline: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
    """When a smoke job must have ended."""
    smoke_job: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The name of the smoke job."""


class SetTraffic(QuickRequest[Done]):
    """Input of `set_traffic`."""

    endpoint: str
    kind: Kind = "online"
    traffic: EndpointTraffic


class Directions(Contract):
    """What people and newer models ask of a rollout."""

    decision: Decision | None = None
    """A person's decision about `ReadDirections.step`, if there is one."""
    superseded_by: str | None = None


class ReadDirections(QuickRequest[Directions]):
    """Input of `read_directions`. It needs only the records, so that it works in most outages."""

    rollout: str
    endpoint: str
    step: int


class Observation(Contract):
    """The requests of a deployment since its step began."""

    requests: float = 0
    """Requests since the step began, failed ones included; for a batch deployment, its jobs."""
    failures: float = 0
    latency_p95_ms: float | None = None
    """The value of the worst minute."""


class ObserveRollout(QuickRequest[Observation]):
    """Input of `observe_rollout`."""

    rollout: str
    endpoint: str
    kind: Kind = "online"
    deployment: str
    step: int
    since: datetime
    """When the step began."""


class AnswerMeasurement(Contract):
    """The measurement of one guard of the model's answers, since the step began."""

    answers: int
    """The new deployment's answers that were collected and read."""
    without: int
    """Answers without the field, or, for a mean, without a number in it."""
    value: float | None
    """The metric; None without an answer to measure."""
    compared: int
    """Answers of the current deployments; if answers are joined, the requests that have both."""
    reference: float | None
    """The metric of the current deployments."""


class AnswerMeasurements(Contract):
    """The measurements, one for each guard, in the order of the guards."""

    guards: list[AnswerMeasurement]


class MeasureAnswers(QuickRequest[AnswerMeasurements]):
    """Input of `measure_answers`."""

    endpoint: str
    deployment: str
    current: list[str]
    """The deployments before this one."""
    container: str
    """The container where labels land."""
    guards: list[AnswerGuard]
    since: datetime
    """When the step began."""


class DeleteDeployments(QuickRequest[Done]):
    """Input of `delete_deployments`."""

    endpoint: str
    kind: Kind = "online"
    deployments: list[str]
    smoke_job: str | None = Field(default=None, exclude_if=lambda it: it is None)
    """The smoke job to cancel, unless it has ended."""


class RecordRollout(QuickRequest[Done]):
    """Input of `record_rollout`: tags the model, and the model in service."""

    rollout: str
    endpoint: str
    kind: Kind = "online"
    model: Model
    outcome: RolloutOutcome
    serving: str | None
    """The deployment with most of the traffic, if there is one."""
    approvals: dict[ApprovedStep, str] = Field(default={}, exclude_if=lambda it: not it)
    """As in `RolloutProgress`."""


class AlertRolloutHeld(ActivityRequest[Done]):
    """Input of `alert_rollout_held`: a rollout waits, because it cannot know how to go on."""

    alert_id: str
    """The same for all of one outage."""
    rollout: str
    pipeline: str
    endpoint: str
    state: RolloutState
    since: datetime
    message: str
    at: datetime
    traceparent: Traceparent = None


class StartRollout(ActivityRequest[Done]):
    """Input of `start_rollout`: put the request on the queue `rollouts`."""

    rollout: str
    request: RolloutRequest
