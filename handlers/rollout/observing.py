"""Activities of a rollout that read metrics, answers, decisions and windows; and its alert.

An event wakes the rollout up after a decision is recorded; if the event is lost, the next poll
finds the record.

Azure ML's data collector appends to blobs
`modelDataCollector/<endpoint>/<deployment>/<collection>/<time>/…` of the workspace's default
datastore, also for mirrored requests. Blobs are read newest first, at most `MOST_BYTES` per
deployment and collection, to bound memory and time.
https://learn.microsoft.com/azure/machine-learning/how-to-collect-production-data
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError

from handlers.notify.outbox import trouble
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_monitor import query_metrics
from handlers.platform.clients import Clients
from handlers.platform.message_outbox import send_in_background
from handlers.platform.rollout_index import record_step
from handlers.platform.service_bus import OPS_ALERTS
from handlers.rollout.deployments import check_deployment
from handlers.rollout.endpoint_claims import superseding_rollout
from orchestrations.configuration.deploy import SEARCHED
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import (
    AlertRolloutHeld,
    AnswerMeasurements,
    Decision,
    Directions,
    FindWindow,
    MeasureAnswers,
    Observation,
    ObserveRollout,
    ReadDirections,
    Window,
)
from orchestrations.errors import InvalidPipeline
from orchestrations.names import smoke_job
from orchestrations.rollout.answer_guards import Measuring, Row, parse_collected, parse_line

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

REQUESTS = "RequestsPerMinute"
LATENCY = "RequestLatency_P95"
# 408 the model was too slow, 424 it failed, 429 it was too busy.
# https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes
FAILED_STATUSES = frozenset({408, 424, 429})
SERVER_ERROR = 500
FOLDER = "modelDataCollector"
MOST_BYTES = 16 * 1024 * 1024
MOST_DAYS = 8
"""More than the longest baking time of a step, a week."""


def read_deployment_metrics(
    clients: Clients, endpoint: str, deployment: str, *, since: datetime, now: datetime
) -> Observation:
    """Requests, failures and the highest latency of any minute of a deployment since a moment.

    The whole minute of that moment is included, since metrics are per minute.
    """
    first = since.astimezone(UTC).replace(second=0, microsecond=0)
    resource, of_deployment = f"/onlineEndpoints/{endpoint}", f"deployment eq '{deployment}'"
    requests = failures = 0.0
    condition = f"{of_deployment} and statusCode eq '*'"
    by_status = query_metrics(clients, resource, REQUESTS, condition, since=first, now=now)
    for dimensions, value in _points(by_status):
        requests += value
        status = int(dimensions.get("statuscode") or 0)
        if status in FAILED_STATUSES or status >= SERVER_ERROR:
            failures += value
    latencies = query_metrics(clients, resource, LATENCY, of_deployment, since=first, now=now)
    return Observation(
        requests=requests,
        failures=failures,
        latency_p95_ms=max((value for _, value in _points(latencies)), default=None),
    )


def _points(answer: Any) -> Iterator[tuple[Mapping[str, str], float]]:
    """Each minute's value, with its series' dimensions in lower case, since Azure's case varies."""
    for metric in answer["value"]:
        for series in metric["timeseries"]:
            dimensions = {
                entry["name"]["value"].lower(): str(entry["value"])
                for entry in series.get("metadatavalues", ())
            }
            for point in series["data"]:
                if point.get("average") is not None:
                    yield dimensions, float(point["average"])


def count_jobs(clients: Clients, endpoint: str, deployment: str) -> Observation:
    """Count the jobs of a deployment since its creation, without its smoke jobs.

    Cancelled jobs are left out, since they say nothing about the model.
    """
    smoke = smoke_job(endpoint, deployment)
    jobs = clients.ml.batch_deployments.list_jobs(endpoint, name=deployment)
    statuses = Counter(str(job.status) for job in jobs if str(job.name).partition("_")[0] != smoke)
    failed = statuses["Failed"]
    return Observation(requests=statuses["Completed"] + failed, failures=failed)


@activity
def observe_rollout(clients: Clients, request: ObserveRollout) -> Observation:
    """Read the deployment's metrics since the step began.

    A batch deployment has no metrics: its jobs are counted.

    Raises:
        RolloutImpossible: the deployment was deleted. Without requests, its step would not end.
    """
    record_step(clients, request.rollout, request.step, request.since)
    check_deployment(clients, request.kind, request.endpoint, request.deployment)
    if request.kind == "batch":
        return count_jobs(clients, request.endpoint, request.deployment)
    return read_deployment_metrics(
        clients,
        request.endpoint,
        request.deployment,
        since=request.since,
        now=datetime.now(UTC),
    )


@activity
def read_directions(clients: Clients, request: ReadDirections) -> Directions:
    """Read people's decisions about a rollout, and whether a newer one supersedes it."""
    return Directions(
        decision=_read_decision(clients, request.rollout, request.step),
        superseded_by=superseding_rollout(clients, request.endpoint, request.rollout),
    )


@activity
def find_window(clients: Clients, request: FindWindow) -> Window:  # noqa: ARG001 - as every activity
    """Find out when traffic may move: now, or from a later time.

    An activity, since the answer depends on the machine's time zone database.

    Raises:
        InvalidPipeline: no window ever opens.
    """
    opening = request.windows.next_opening(request.at)
    if opening is None:
        raise InvalidPipeline(
            f"deploy.windows has no opening within {SEARCHED.days} days of {request.at:%Y-%m-%d}: "
            "change open or closed"
        )
    return Window(closed_until=None if opening <= request.at else opening)


def record_decision(clients: Clients, rollout: str, decision: Decision) -> None:
    """Record a decision; only the first one counts."""
    name = _record(rollout, decision.step if decision.verb == "promote" else None)
    record_store.create(clients.records, name, decision.to_dict())


def _read_decision(clients: Clients, rollout: str, step: int) -> Decision | None:
    """The decision about a step; a rollback is about all steps, and has precedence."""
    for name in (_record(rollout, None), _record(rollout, step)):
        document = record_store.read(clients.records, name)
        if document is not None:
            return Decision.from_dict(document)
    return None


def _record(rollout: str, step: int | None) -> str:
    return f"rollouts/{rollout}/" + ("rollback.json" if step is None else f"promote-{step}.json")


@activity
def alert_rollout_held(clients: Clients, request: AlertRolloutHeld) -> Done:
    """Alert operators to a rollout that waits; does not wait for Service Bus."""
    alert = trouble(
        "rollout-held",
        alert_id=request.alert_id,
        severity="warning",
        at=request.at,
        data={
            "rollout": request.rollout,
            "endpoint": request.endpoint,
            "state": request.state,
            "since": request.since.isoformat(),
            "message": request.message,
        },
        pipeline=request.pipeline,
        traceparent=request.traceparent,
    )
    send_in_background(clients, OPS_ALERTS, alert)
    return Done()


@activity
def measure_answers(clients: Clients, request: MeasureAnswers) -> AnswerMeasurements:
    """Measure the guards on the collected answers since the step began."""
    measuring = [Measuring(guard) for guard in request.guards]
    for collection in {guard.collection for guard in request.guards}:
        together = [each for each in measuring if each.guard.collection == collection]
        for row in _collected_rows(clients, request, request.deployment, collection):
            for each in together:
                each.add(row)
        compared = [each for each in together if each.guard.is_compared]
        for deployment in request.current if compared else ():
            for row in _collected_rows(clients, request, deployment, collection):
                for each in compared:
                    each.compare(row)
    landed = clients.blobs.get_container_client(request.container)
    for each in measuring:
        if each.guard.labels is not None:
            for line in _newest_lines(landed, each.guard.labels, since=request.since):
                each.compare(parse_line(line))
    return AnswerMeasurements(guards=[each.result() for each in measuring])


def _collected_rows(
    clients: Clients, request: MeasureAnswers, deployment: str, collection: str
) -> Iterator[Row]:
    """Rows of a deployment's answers since the step began, newest blobs first."""
    container = str(clients.default_datastore.container_name)
    collected = clients.workspace_blobs.get_container_client(container)
    folder = f"{FOLDER}/{request.endpoint}/{deployment}/{collection}/"
    prefixes = _days(folder, request.since, datetime.now(UTC))
    for line in _newest_lines(collected, *prefixes, since=request.since):
        yield from parse_collected(line, since=request.since)


def _days(folder: str, since: datetime, now: datetime) -> list[str]:
    """The collector's folders of the days since a time, newest first, at most `MOST_DAYS`."""
    days = min((now.date() - since.astimezone(UTC).date()).days + 1, MOST_DAYS)
    return [f"{folder}{now - timedelta(days=day):%Y/%m/%d}/" for day in range(days)]


def _newest_lines(container: ContainerClient, *prefixes: str, since: datetime) -> Iterator[bytes]:
    """The lines of blobs that were modified since a time, newest blobs first, up to `MOST_BYTES`.

    A blob that exceeds the limit gives its last lines. A missing container has no lines.
    """
    left = MOST_BYTES
    for prefix in prefixes:
        try:
            listed = [
                (blob.last_modified, str(blob.name), int(blob.size))
                for blob in container.list_blobs(name_starts_with=prefix)
                if blob.last_modified >= since.replace(microsecond=0) and blob.size
            ]
        except ResourceNotFoundError:
            return
        for _, name, size in sorted(listed, reverse=True):
            length = min(size, left)
            content = container.download_blob(name, offset=size - length, length=length).readall()
            lines = content.split(b"\n")
            yield from lines if length == size else lines[1:]  # the first line is cut
            left -= length
            if left <= 0:
                return
