"""Endpoints and deployments in memory: how they change, and what their requests become.

The rules are Azure's: a deployment that gets traffic is not deleted, traffic names deployments that
are provisioned and adds up to 0 or 100, one deployment has mirrored requests, and an endpoint that
is being changed refuses another change.
https://learn.microsoft.com/azure/machine-learning/how-to-safely-rollout-online-endpoints
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.fakes.azure_ml import refusal
from tests.simulation.scheduler import Scheduler
from tests.simulation.story import ModelEnd, ModelFate, NoRequests, Story

Kind = Literal["online", "batch"]
Shares = dict[str, int]
NEVER = float("inf")
MINUTE = 60.0
# Azure Monitor shows a minute some minutes later.
METRICS_DELAY_SECONDS = 180.0
REQUESTS_PER_MINUTE = 60.0
# Jobs that others start on the default deployment of a batch endpoint.
JOB_INTERVAL_SECONDS = 900.0
WHOLE = 100
MOST_MIRRORED = 50
# From its provisioning on, a model that breaks later serves well for so long.
GOOD_SECONDS = 1_200.0


@dataclass
class Change:
    """The traffic of an endpoint from a second on."""

    at: float
    traffic: Shares
    mirror: Shares


@dataclass
class Endpoint:
    """An endpoint, and all traffic that it ever had."""

    name: str
    kind: Kind
    tags: dict[str, str]
    changes: list[Change]
    busy_until: float = 0.0
    """A change is in progress until then."""

    @property
    def traffic(self) -> Shares:
        """Percent by deployment; of a batch endpoint, its default has all."""
        return self.changes[-1].traffic

    @property
    def mirror(self) -> Shares:
        return self.changes[-1].mirror


@dataclass
class Deployment:
    """One model version behind an endpoint."""

    name: str
    endpoint: str
    model: str
    """Reference of the model, `azureml:<name>:<version>`."""
    tags: dict[str, str]
    end: ModelEnd
    made_at: float
    ready_at: float
    """When its provisioning ends, well or not."""
    gone_at: float = NEVER
    """When its deletion ends."""

    @property
    def version(self) -> str:
        return self.model.rpartition(":")[2]


@dataclass
class Serving:
    """The endpoints of a workspace."""

    scheduler: Scheduler
    story: Story
    endpoints: dict[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    deployments: dict[tuple[str, str], Deployment] = field(
        default_factory=dict[tuple[str, str], Deployment]
    )
    past: list[Deployment] = field(default_factory=list[Deployment])
    """Deployments that were deleted."""
    past_endpoints: list[Endpoint] = field(default_factory=list[Endpoint])
    refused: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    """Changes of traffic, and deletions, that broke a rule of Azure's."""
    deleted_by_people: list[float] = field(default_factory=list[float])
    """When a person deleted an endpoint."""

    def __post_init__(self) -> None:
        self._chance = random.Random(f"serving {self.story.seed}")
        self._fates = self.story.nth(ModelFate)
        self._pauses = [
            (item.at, item.at + item.seconds)
            for item in self.story.items
            if isinstance(item, NoRequests)
        ]

    @property
    def now(self) -> float:
        return self.scheduler.time()

    def end_of(self, version: str) -> ModelEnd:
        """What becomes of a model version behind an endpoint."""
        fate = self._fates.get(int(version))
        return "serves" if fate is None else fate.end

    def every_deployment(self) -> list[Deployment]:
        """Those that are there, and those that were deleted."""
        return [*self.past, *self.deployments.values()]

    def every_endpoint(self) -> list[Endpoint]:
        return [*self.past_endpoints, *self.endpoints.values()]

    # --- endpoints -------------------------------------------------------------------------------

    def find(self, kind: Kind, name: str) -> Endpoint:
        """The endpoint of a name.

        Raises:
            HttpResponseError: 404, there is none.
        """
        found = self.endpoints.get(name)
        if found is None or found.kind != kind:
            raise refusal(404, f"endpoint {name} was not found")
        return found

    def put_endpoint(
        self, kind: Kind, name: str, tags: dict[str, str], traffic: Shares, mirror: Shares
    ) -> float:
        """Create an endpoint or change its traffic; return when the change has ended.

        Raises:
            HttpResponseError: 409, it is being changed; 400, the traffic breaks a rule.
        """
        endpoint = self.endpoints.get(name)
        if endpoint is not None and endpoint.busy_until > self.now:
            raise refusal(409, f"endpoint {name} is being changed")
        self._check(name, traffic, mirror)
        change = Change(self.now, dict(traffic), dict(mirror))
        if endpoint is None:
            endpoint = Endpoint(name, kind, tags, [change])
            self.endpoints[name] = endpoint
        elif (endpoint.traffic, endpoint.mirror) != (traffic, mirror):
            endpoint.changes.append(change)
        # Some take longer than the app waits.
        endpoint.busy_until = self.now + self._chance.choice([5.0, 20.0, 60.0, 200.0])
        return endpoint.busy_until

    def _check(self, endpoint: str, traffic: Shares, mirror: Shares) -> None:
        wrong: str | None = None
        for name in {**traffic, **mirror}:
            found = self.deployments.get((endpoint, name))
            if found is None or self.state(found) != "Succeeded":
                wrong = f"deployment {name} does not serve"
        if sum(traffic.values()) not in (0, WHOLE):
            wrong = f"traffic {traffic} adds up to {sum(traffic.values())}"
        if len(mirror) > 1 or any(not 1 <= each <= MOST_MIRRORED for each in mirror.values()):
            wrong = f"mirror {mirror} is not one deployment with at most {MOST_MIRRORED}"
        if traffic.keys() & mirror.keys():
            wrong = f"traffic {traffic} and mirror {mirror} share a deployment"
        if wrong is not None:
            self.refused.append((self.now, f"{endpoint}: {wrong}"))
            raise refusal(400, wrong)

    def delete_endpoint(self, name: str) -> None:
        """A person deletes an endpoint with its deployments."""
        if name not in self.endpoints:
            return
        self.deleted_by_people.append(self.now)
        endpoint = self.endpoints.pop(name)
        endpoint.changes.append(Change(self.now, {}, {}))
        self.past_endpoints.append(endpoint)
        for key in [each for each in self.deployments if each[0] == name]:
            self._remove(self.deployments.pop(key))

    # --- deployments -----------------------------------------------------------------------------

    def find_deployment(self, endpoint: str, name: str) -> Deployment:
        """A deployment that is there.

        Raises:
            HttpResponseError: 404, there is none.
        """
        found = self.deployments.get((endpoint, name))
        if found is not None and found.gone_at <= self.now:
            del self.deployments[endpoint, name]
            self.past.append(found)
            found = None
        if found is None:
            raise refusal(404, f"deployment {name} of endpoint {endpoint} was not found")
        return found

    def put_deployment(self, kind: Kind, deployment: Any) -> None:
        """Create a deployment; its provisioning takes minutes.

        Raises:
            HttpResponseError: 404 without the endpoint, 409 if the deployment is being changed.
        """
        endpoint, name = deployment.endpoint_name, deployment.name
        self.find(kind, endpoint)
        if (endpoint, name) in self.deployments:
            raise refusal(409, f"deployment {name} exists")
        version = str(deployment.model).rpartition(":")[2]
        end = self.end_of(version)
        takes = self._chance.choice([60.0, 300.0, 900.0])
        made = Deployment(
            name=name,
            endpoint=endpoint,
            model=str(deployment.model),
            tags=dict(deployment.tags),
            end=end,
            made_at=self.now,
            ready_at=NEVER if end == "is never provisioned" else self.now + takes,
        )
        self.deployments[endpoint, name] = made

    def delete_deployment(self, endpoint: str, name: str) -> float:
        """Delete a deployment; return when that has ended.

        Raises:
            HttpResponseError: 404 without it, 400 while it has traffic.
        """
        found = self.find_deployment(endpoint, name)
        there = self.endpoints[endpoint]
        if name in {**there.traffic, **there.mirror}:
            wrong = f"deployment {name} gets traffic: set it to 0 first"
            self.refused.append((self.now, f"{endpoint}: {wrong}"))
            raise refusal(400, wrong)
        takes = self._chance.choice([5.0, 60.0, 200.0])
        found.gone_at = min(found.gone_at, self.now + takes)
        return found.gone_at

    def _remove(self, deployment: Deployment) -> None:
        deployment.gone_at = min(deployment.gone_at, self.now)
        self.past.append(deployment)

    def state(self, deployment: Deployment) -> str:
        """Its provisioning state."""
        if deployment.gone_at < NEVER:
            return "Deleting"
        if self.now < deployment.ready_at:
            return "Creating"
        return "Failed" if deployment.end == "cannot be provisioned" else "Succeeded"

    # --- requests --------------------------------------------------------------------------------

    def share_at(self, endpoint: str, deployment: str, at: float) -> int:
        """The percentage of the requests that a deployment gets, mirrored ones included."""
        found = self.endpoints.get(endpoint)
        if found is None:
            return 0
        for change in reversed(found.changes):
            if change.at <= at:
                return change.traffic.get(deployment, 0) + change.mirror.get(deployment, 0)
        return 0

    def requests_at(self, at: float) -> float:
        """Requests of a minute to an endpoint."""
        is_pause = any(start <= at < end for start, end in self._pauses)
        return 0.0 if is_pause else REQUESTS_PER_MINUTE

    def failing_share(self, deployment: Deployment, at: float) -> float:
        """The share of its requests, or jobs, that fail."""
        if deployment.end == "fails requests":
            return 0.5
        if deployment.end == "fails later" and at >= deployment.ready_at + GOOD_SECONDS:
            return 0.5
        return 0.0

    def minutes(
        self, deployment: Deployment, start: float, end: float
    ) -> list[tuple[float, float]]:
        """Begin and number of requests of every minute that Azure Monitor shows by now."""
        shown_until = min(end, self.now - METRICS_DELAY_SECONDS)
        found: list[tuple[float, float]] = []
        at = start - start % MINUTE
        while at + MINUTE <= shown_until:
            share = self.share_at(deployment.endpoint, deployment.name, at)
            if share:
                found.append((at, self.requests_at(at) * share / WHOLE))
            at += MINUTE
        return found

    def jobs(self, endpoint: str, deployment: str) -> list[tuple[str, str]]:
        """Name and status of the jobs that others ran on a batch deployment."""
        made = self.find_deployment(endpoint, deployment)
        found: list[tuple[str, str]] = []
        number = int(made.made_at // JOB_INTERVAL_SECONDS) + 1
        while (at := number * JOB_INTERVAL_SECONDS) < self.now:
            number += 1
            if self.share_at(endpoint, deployment, at) and self.requests_at(at):
                status = "Failed" if self.failing_share(made, at) else "Completed"
                found.append((f"scoring-{number}", status))
        return found
