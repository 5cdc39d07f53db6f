"""The utilisation of a running job's nodes, in the form of Azure Monitor.

All nodes are this machine, so the values are those of the whole machine at the time of the request,
with the last minute of the time span. GPUs are not measured: their metrics have no series.

https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-machinelearningservices-workspaces-metrics
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import psutil
from aiohttp import web

from localazure.machinelearning.arm import WORKSPACE, WORKSPACE_PATH
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.store import get_job
from localazure.machinelearning.serving.metrics import parse_timespan

routes = web.RouteTableDef()

_CONDITION = re.compile(r"^\s*RunId\s+eq\s+'([^']*)'\s*$", re.IGNORECASE)
_CPU, _MEMORY = "CpuUtilizationPercentage", "CpuMemoryUtilizationPercentage"
_KNOWN = (_CPU, _MEMORY, "GpuUtilizationPercentage", "GpuMemoryUtilizationPercentage")
_MEASURED_SECONDS = 0.1


@routes.get(f"{WORKSPACE_PATH}/providers/Microsoft.Insights/metrics")
async def get_metrics(request: web.Request) -> web.Response:
    """Return the utilisation of the nodes of a job, if it runs."""
    workspace, span = request.app[WORKSPACE], request.query.get("timespan", "")
    names = request.query.get("metricnames", "").split(",")
    unknown = [name for name in names if name not in _KNOWN]
    if unknown:
        raise invalid(f"metric {unknown[0]!r} is not covered; there are {', '.join(_KNOWN)}")
    condition = _CONDITION.match(request.query.get("$filter", ""))
    if condition is None:
        raise invalid("only the $filter RunId eq 'job' is covered")
    _, last = parse_timespan(span)
    minute = datetime.fromtimestamp((last - 1) // 60 * 60, tz=UTC)
    job = get_job(workspace.database.read, condition[1])
    values: dict[str, float] = {}
    if job is not None and job.status is JobStatus.RUNNING:
        used = await asyncio.to_thread(psutil.cpu_percent, _MEASURED_SECONDS)
        values = {_CPU: used, _MEMORY: psutil.virtual_memory().percent}
    metrics: list[dict[str, Any]] = []
    for name in names:
        data = {"timeStamp": f"{minute:%Y-%m-%dT%H:%M:%SZ}", "average": values.get(name)}
        series = [{"metadatavalues": [], "data": [data]}] if name in values else []
        metrics.append({"name": {"value": name}, "unit": "Count", "timeseries": series})
    return web.json_response({"timespan": span, "interval": "PT1M", "value": metrics})
