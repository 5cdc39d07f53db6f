"""A rollout: one model version on its way to an endpoint's whole traffic, or back."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from orchestrations.contracts.base import ActivityRequest, Contract, Done, Traceparent
from orchestrations.contracts.models import Model
from orchestrations.deploy import AnswerGuard, EndpointKind
from orchestrations.pipeline import Pipeline

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
]
RolloutEnding = Literal["rolled_back", "superseded"]
RolloutOutcome = Literal["live", "rolled_back", "superseded"]
Verb = Literal["promote", "rollback"]
Traffic = dict[str, int]
"""Percent of the live requests by deployment."""


def _is_online(kind: EndpointKind) -> bool:
    return kind == "online"


Kind = Annotated[EndpointKind, Field(default="online", exclude_if=_is_online)]
"""Left out for online endpoints, so that their histories do not change."""


class RolloutRequest(Contract):
    """The model to roll out: the body of a message on the queue `rollouts`."""

    pipeline: Pipeline
    """With `deploy`."""
    model: Model
    run: str
    """The run that registered the model."""
    traceparent: Traceparent = None
    """The same run."""


class EndpointTraffic(Contract):
    """How an endpoint divides its requests. A batch endpoint's default deployment has 100."""

    traffic: Traffic = Field(default_factory=dict[str, int])
    mirror: Traffic = Field(default_factory=dict[str, int])


class Decision(Contract):
    """A person's decision about a rollout; the first one about each state counts."""

    verb: Verb
    by: str
    reason: str
    step: int
    """The number of the step that the rollout was in: a decision is about that step alone."""


class RolloutProgress(Contract):
    """Where a rollout goes on after `continue_as_new`."""

    state: RolloutState
    since: datetime
    step: int = 0
    """The step that is baking, from 0; as many as there are steps when it is live."""
    previous: EndpointTraffic | None = None
    """The traffic before the rollout, which a rollback sets again."""
    ending: RolloutEnding | None = None
    """Set while the previous traffic is being restored: how the rollout will have ended."""
    reason: str | None = None
    """Why it is being ended so."""


class RolloutInput(Contract):
    """Input of `rollout`, also when it continues as new while it waits."""

    request: RolloutRequest
    progress: RolloutProgress | None = None


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
    """The traffic that the endpoint was last set to."""
    mirror: Traffic | None = None
    requests: float | None = None
    """Since the step began."""
    error_rate: float | None = None
    latency_p95_ms: float | None = None
    # Left out where there are none, so that the histories of other pipelines do not change.
    answers: dict[str, float] = Field(
        default_factory=dict[str, float], exclude_if=lambda it: not it
    )
    """Metrics of the model's answers in the step, by their guards' labels."""
    reason: str | None = None


class EndpointClaim(Contract):
    """The right to change an endpoint."""

    granted: bool
    holder: str | None = None
    """The rollout that has the endpoint, when it was not granted."""
    superseded_by: str | None = None
    """The rollout of a newer model of the endpoint."""


class ClaimEndpoint(ActivityRequest[EndpointClaim]):
    """Input of `claim_endpoint`."""

    rollout: str
    endpoint: str
    version: int
    """Of the model: the greater supersedes the smaller."""


class ReleaseEndpoint(ActivityRequest[Done]):
    """Input of `release_endpoint`."""

    rollout: str
    endpoint: str


class EnsureEndpoint(ActivityRequest[EndpointTraffic]):
    """Input of `ensure_endpoint`."""

    endpoint: str
    kind: Kind = "online"
    pipeline: str


class DeploymentState(Contract):
    """How far the provisioning of a deployment is."""

    state: Literal["provisioning", "ready", "failed"]
    message: str | None = None
    """Why it failed, with the end of its log."""


class EnsureDeployment(ActivityRequest[DeploymentState]):
    """Input of `ensure_deployment`."""

    rollout: str
    deployment: str
    request: RolloutRequest


class SmokeTest(Contract):
    """How far the test of a new deployment is. It has passed when no job runs."""

    job: str | None = None
    """The smoke job that is not over yet."""


class TestDeployment(ActivityRequest[SmokeTest]):
    """Input of `test_deployment`: send a smoke request, or start a smoke job."""

    __test__ = False  # no test class, whatever pytest makes of its name

    endpoint: str
    deployment: str
    pipeline: Pipeline
    # Left out for online endpoints, so that their histories do not change.
    model: Model | None = Field(default=None, exclude_if=lambda it: it is None)
    """Of a batch deployment: a file of its dataset is scored."""
    deadline: datetime | None = Field(default=None, exclude_if=lambda it: it is None)
    """When a smoke job must be over."""


class SetTraffic(ActivityRequest[Done]):
    """Input of `set_traffic`."""

    endpoint: str
    kind: Kind = "online"
    traffic: EndpointTraffic


class Observation(Contract):
    """State of a rollout while it waits."""

    requests: float = 0
    """Since the step began, those that failed included. Of a batch deployment: its jobs."""
    failures: float = 0
    latency_p95_ms: float | None = None
    """The worst minute's."""
    decision: Decision | None = None
    """Of a person, about the step that was asked for."""
    superseded_by: str | None = None


class ObserveRollout(ActivityRequest[Observation]):
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
    """Of the new deployment, as far as they were collected and read."""
    without: int
    """Those that lack the field; of a mean, those that have no number there."""
    value: float | None
    """The metric. None where there is no answer to measure."""
    compared: int
    """Answers of the current deployments; where answers are joined, the requests with both."""
    reference: float | None
    """The metric of the current deployments."""


class AnswerMeasurements(Contract):
    """The measurements, one for each guard, in the order of the guards."""

    guards: list[AnswerMeasurement]


class MeasureAnswers(ActivityRequest[AnswerMeasurements]):
    """Input of `measure_answers`."""

    endpoint: str
    deployment: str
    current: list[str]
    """The deployments before this one."""
    container: str
    """Where labels land."""
    guards: list[AnswerGuard]
    since: datetime
    """When the step began."""


class DeleteDeployments(ActivityRequest[Done]):
    """Input of `delete_deployments`."""

    endpoint: str
    kind: Kind = "online"
    deployments: list[str]


class RecordRollout(ActivityRequest[Done]):
    """Input of `record_rollout`: the tags of the model, and of the one that is in service."""

    rollout: str
    endpoint: str
    kind: Kind = "online"
    model: Model
    outcome: RolloutOutcome
    serving: str | None
    """The deployment with most of the traffic now, if there is one."""


class StartRollout(ActivityRequest[Done]):
    """Input of `start_rollout`: put the request on the queue `rollouts`."""

    rollout: str
    request: RolloutRequest
