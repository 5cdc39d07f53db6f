"""What the handlers ask of endpoints: the SDK's operations, and REST requests beside them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from azure.core.exceptions import HttpResponseError
from azure.core.rest import HttpRequest

from tests.fakes.azure_ml import refusal
from tests.fakes.blob_storage import remote
from tests.simulation.fakes.serving import Deployment, Kind, Serving
from tests.simulation.network import Network
from tests.simulation.scheduler import START, Scheduler
from tests.simulation.story import HOUR

Call = Callable[[str, Callable[[], Any]], Any]
SCORING_HOST = "scoring.example"
DEPLOYMENT_HEADER = "azureml-model-deployment"
BAD_LATENCY_MS = 2_000.0
GOOD_LATENCY_MS = 80.0


class Operation:
    """A long-running operation, which ends at a second."""

    def __init__(self, scheduler: Scheduler, at: float) -> None:
        self._scheduler = scheduler
        self._at = at

    def wait(self, seconds: float) -> None:
        left = self._at - self._scheduler.time()
        if left > 0:
            self._scheduler.pause(min(left, seconds))

    def done(self) -> bool:
        return self._scheduler.time() >= self._at


class Endpoints:
    """`online_endpoints` or `batch_endpoints`."""

    def __init__(self, serving: Serving, kind: Kind, call: Call) -> None:
        self._serving = serving
        self._kind: Kind = kind
        self.call = call

    @remote("get endpoint")
    def get(self, name: str) -> Any:
        found = self._serving.find(self._kind, name)
        shown = SimpleNamespace(
            name=name, tags=dict(found.tags), scoring_uri=f"https://{SCORING_HOST}/{name}/score"
        )
        if self._kind == "batch":
            default = next(iter(found.traffic), None)
            shown.defaults = None if default is None else SimpleNamespace(deployment_name=default)
        else:
            shown.traffic, shown.mirror_traffic = dict(found.traffic), dict(found.mirror)
        return shown

    @remote("put endpoint")
    def begin_create_or_update(self, endpoint: Any) -> Operation:
        traffic, mirror = {}, {}
        if self._kind == "online":
            traffic, mirror = dict(endpoint.traffic), dict(endpoint.mirror_traffic)
        elif endpoint.defaults is not None:
            traffic = {endpoint.defaults["deployment_name"]: 100}
        serving = self._serving
        until = serving.put_endpoint(
            self._kind, endpoint.name, dict(endpoint.tags or {}), traffic, mirror
        )
        return Operation(serving.scheduler, until)

    @remote("get keys")
    def get_keys(self, name: str) -> Any:
        self._serving.find("online", name)
        return SimpleNamespace(primary_key="key")


class Deployments:
    """`online_deployments` or `batch_deployments`."""

    def __init__(self, serving: Serving, kind: Kind, call: Call) -> None:
        self._serving = serving
        self._kind: Kind = kind
        self.call = call

    @remote("get deployment")
    def get(self, name: str, endpoint: str) -> Any:
        return self._shown(self._serving.find_deployment(endpoint, name))

    @remote("list deployments")
    def list(self, endpoint: str) -> Iterator[Any]:
        found = self._serving.deployments.items()
        return iter([self._shown(it) for key, it in found if key[0] == endpoint])

    def _shown(self, found: Deployment) -> Any:
        _, model, version = found.model.split(":")
        return SimpleNamespace(
            name=found.name,
            tags=dict(found.tags),
            provisioning_state=self._serving.state(found),
            model=f"/workspaces/w/models/{model}/versions/{version}",
        )

    @remote("put deployment")
    def begin_create_or_update(self, deployment: Any) -> None:
        self._serving.put_deployment(self._kind, deployment)

    @remote("delete deployment")
    def begin_delete(self, name: str, endpoint: str) -> Operation:
        gone_at = self._serving.delete_deployment(endpoint, name)
        return Operation(self._serving.scheduler, gone_at)

    @remote("get logs")
    def get_logs(self, name: str, endpoint: str, *, lines: int) -> str:
        del lines
        self._serving.find_deployment(endpoint, name)
        return "ImportError: no module named torch"

    @remote("list jobs")
    def list_jobs(self, endpoint: str, *, name: str) -> list[Any]:
        return [
            SimpleNamespace(name=job, status=status)
            for job, status in self._serving.jobs(endpoint, name)
        ]


class Answer:
    """A response of REST, as far as the handlers and `HttpResponseError` read it."""

    def __init__(self, status: int, document: Any) -> None:
        self.headers: dict[str, str] = {}
        self.reason = ""
        self.status_code = status
        self._document = document

    def json(self) -> Any:
        return self._document

    def text(self, *_: Any) -> str:
        return json.dumps(self._document)

    def read(self) -> None:
        """The body is there."""


class PipelineClients:
    """In the place of azure-core's `PipelineClient`: metrics, scoring requests, and smoke jobs.

    Args:
        post_job: starts a job; called with its name, its seconds, and whether it fails.
    """

    def __init__(
        self,
        serving: Serving,
        network: Network,
        post_job: Callable[[str, float, bool], None],
    ) -> None:
        self._serving = serving
        self._network = network
        self._post_job = post_job
        self._chance = random.Random(f"smoke {serving.story.seed}")

    def __call__(self, _base: str, **_: Any) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Do nothing: the fake holds no connection."""

    def send_request(self, request: HttpRequest, **_: Any) -> Answer:
        if SCORING_HOST in request.url:
            return self._network.call_rest("scoring", "score", lambda: self._score(request))
        return self._network.call_rest("metrics", "read", lambda: self._metrics(request))

    def _score(self, request: HttpRequest) -> Answer:
        endpoint = urlsplit(request.url).path.split("/")[1]
        found = self._serving.endpoints.get(endpoint)
        if found is None:
            return Answer(404, {"error": {"code": "NotFound", "message": "no such endpoint"}})
        try:
            name = request.headers[DEPLOYMENT_HEADER]
            deployment = self._serving.find_deployment(endpoint, name)
        except HttpResponseError as error:
            return Answer(404, {"error": {"code": "NotFound", "message": error.message}})
        fails = deployment.end == "fails its smoke request"
        if found.kind == "online":
            return Answer(424 if fails else 200, {"answer": 7})
        job = json.loads(request.content)["properties"]["name"]
        try:
            self._post_job(job, self._chance.choice([120.0, 900.0, HOUR / 2]), fails)
        except HttpResponseError as error:
            return Answer(409, {"error": {"code": "Conflict", "message": error.message}})
        return Answer(200, {"name": job})

    def _metrics(self, request: HttpRequest) -> Answer:
        parts = urlsplit(request.url)
        endpoint = parts.path.partition("/onlineEndpoints/")[2].split("/")[0]
        if endpoint not in self._serving.endpoints:
            raise refusal(404, f"endpoint {endpoint} was not found")
        asked = dict(parse_qsl(parts.query))
        start, end = (_seconds(each) for each in asked["timespan"].split("/"))
        name = asked["$filter"].split("'")[1]
        known = [each for each in self._serving.every_deployment() if each.name == name]
        series: list[Any] = []
        if known:
            deployment = known[-1]
            minutes = self._serving.minutes(deployment, start, end)
            if asked["metricnames"] == "RequestsPerMinute":
                series = self._requests(deployment, minutes)
            else:
                slow = deployment.end == "is slow"
                latency = BAD_LATENCY_MS if slow else GOOD_LATENCY_MS
                series = [_series(None, [latency for _, count in minutes if count])]
        return Answer(200, {"value": [{"timeseries": series}]})

    def _requests(self, deployment: Deployment, minutes: list[tuple[float, float]]) -> list[Any]:
        failed = [count * self._serving.failing_share(deployment, at) for at, count in minutes]
        answered = [count - bad for (_, count), bad in zip(minutes, failed, strict=True)]
        return [_series("200", answered), _series("424", failed)]


def _series(status: str | None, values: list[float]) -> dict[str, Any]:
    dimensions = [] if status is None else [{"name": {"value": "statusCode"}, "value": status}]
    return {"metadatavalues": dimensions, "data": [{"average": value} for value in values]}


def _seconds(moment: str) -> float:
    return (datetime.fromisoformat(moment) - START).total_seconds()
