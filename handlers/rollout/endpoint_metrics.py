"""The metrics of a deployment: of an online endpoint, or the jobs of a batch endpoint.

Those of an online endpoint are from Azure Monitor, by its REST API: azure-monitor-query cannot
query one resource's metrics, and azure-mgmt-monitor is 30 MB for one GET.
https://learn.microsoft.com/rest/api/monitor/metrics/list
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest

from handlers.platform.clients import Clients
from orchestrations.contracts.rollouts import Observation
from orchestrations.names import smoke_job

API_VERSION = "2023-10-01"
REQUESTS = "RequestsPerMinute"
LATENCY = "RequestLatency_P95"
# 408 the model was too slow, 424 it failed, 429 it was too busy.
# https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes
FAILED_STATUSES = frozenset({408, 424, 429})
SERVER_ERROR = 500


def read_deployment_metrics(
    clients: Clients, endpoint: str, deployment: str, *, since: datetime, now: datetime
) -> Observation:
    """Requests, failures and the highest latency of any minute of a deployment since a moment.

    The whole minute of that moment is included, since metrics are per minute.
    """
    first = since.astimezone(UTC).replace(second=0, microsecond=0)
    span = f"{_iso(first)}/{_iso(now)}"
    of_deployment = f"deployment eq '{deployment}'"
    requests = failures = 0.0
    by_status = _query(clients, endpoint, span, REQUESTS, f"{of_deployment} and statusCode eq '*'")
    for dimensions, value in _points(by_status):
        requests += value
        status = int(dimensions.get("statuscode") or 0)
        if status in FAILED_STATUSES or status >= SERVER_ERROR:
            failures += value
    latencies = _query(clients, endpoint, span, LATENCY, of_deployment)
    return Observation(
        requests=requests,
        failures=failures,
        latency_p95_ms=max((value for _, value in _points(latencies)), default=None),
    )


def _query(clients: Clients, endpoint: str, span: str, metric: str, condition: str) -> Any:
    settings = clients.settings
    base = settings.resource_manager_endpoint
    resource = (
        f"/subscriptions/{settings.required('AZUREML_SUBSCRIPTION_ID')}"
        f"/resourceGroups/{settings.required('AZUREML_RESOURCE_GROUP')}"
        "/providers/Microsoft.MachineLearningServices"
        f"/workspaces/{settings.required('AZUREML_WORKSPACE_NAME')}/onlineEndpoints/{endpoint}"
    )
    request = HttpRequest(
        "GET",
        f"{base}{resource}/providers/Microsoft.Insights/metrics",
        params={
            "api-version": API_VERSION,
            "metricnames": metric,
            "timespan": span,
            "interval": "PT1M",
            "aggregation": "Average",
            "$filter": condition,
        },
    )
    authentication = BearerTokenCredentialPolicy(clients.credential, f"{base}/.default")
    client: Any = PipelineClient(base, policies=[RetryPolicy(), authentication])
    with client:
        response = client.send_request(request, connection_timeout=10, read_timeout=30)
        if response.status_code >= 400:  # noqa: PLR2004 - HTTP
            response.read()
            raise HttpResponseError(response=response)
        return response.json()


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


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def count_jobs(clients: Clients, endpoint: str, deployment: str) -> Observation:
    """Count the jobs of a deployment since its creation, without its smoke jobs.

    Cancelled jobs are left out, since they say nothing about the model.
    """
    smoke = smoke_job(endpoint, deployment)
    jobs = clients.ml.batch_deployments.list_jobs(endpoint, name=deployment)
    statuses = Counter(str(job.status) for job in jobs if str(job.name).partition("_")[0] != smoke)
    failed = statuses["Failed"]
    return Observation(requests=statuses["Completed"] + failed, failures=failed)
