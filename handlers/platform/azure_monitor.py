"""Metrics of the Azure ML workspace in Azure Monitor, by its REST API.

azure-monitor-query cannot query one resource's metrics; azure-mgmt-monitor is 30 MB for one GET.
https://learn.microsoft.com/rest/api/monitor/metrics/list
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
from azure.core.rest import HttpRequest

from handlers.platform.clients import Clients

API_VERSION = "2023-10-01"


def query_metrics(
    clients: Clients, resource: str, metrics: str, condition: str, *, since: datetime, now: datetime
) -> Any:
    """The averages of each minute, of metrics (separated by commas) that have the same dimensions.

    `resource` is the path below the workspace; empty: the workspace itself.

    Raises:
        AzureError: Azure Monitor refuses, or is not available.
    """
    settings = clients.settings
    base = settings.resource_manager_endpoint
    workspace = (
        f"/subscriptions/{settings.required('AZUREML_SUBSCRIPTION_ID')}"
        f"/resourceGroups/{settings.required('AZUREML_RESOURCE_GROUP')}"
        "/providers/Microsoft.MachineLearningServices"
        f"/workspaces/{settings.required('AZUREML_WORKSPACE_NAME')}"
    )
    request = HttpRequest(
        "GET",
        f"{base}{workspace}{resource}/providers/Microsoft.Insights/metrics",
        params={
            "api-version": API_VERSION,
            "metricnames": metrics,
            "timespan": f"{_iso(since)}/{_iso(now)}",
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


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
