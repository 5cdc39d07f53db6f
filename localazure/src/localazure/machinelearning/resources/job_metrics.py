"""The utilisation of a running job's nodes, in the form of Azure Monitor.

All nodes are this machine, so the values are those of the whole machine at the time of the request,
with the last minute of the time span. GPUs are not measured: their metrics have no series.

https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-machinelearningservices-workspaces-metrics
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import psutil
from aiohttp import web

from localazure.machinelearning.arm import WORKSPACE, WORKSPACE_PATH
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.store import get_job
from localazure.machinelearning.serving.metrics import iso, parse_timespan

routes = web.RouteTableDef()

_CONDITION = re.compile(r"^\s*RunId\s+eq\s+'([^']*)'\s*$", re.IGNORECASE)
_CPU, _MEMORY = "CpuUtilizationPercentage", "CpuMemoryUtilizationPercentage"
_KNOWN = (_CPU, _MEMORY, "GpuUtilizationPercentage", "GpuMemoryUtilizationPercentage")
_MEASURED_SECONDS = 0.1


@routes.get(f"{WORKSPACE_PATH}/providers/Microsoft.Insights/metrics")
async def get_metrics(request: web.Request) -> web.Response:
    """Return the utilisation of the nodes of a job, if it runs."""
    span, names = request.query.get("timespan", ""), request.query.get("metricnames", "").split(",")
    condition = _CONDITION.match(request.query.get("$filter", ""))
    if condition is None or not set(names).issubset(_KNOWN):
        raise invalid(f"only {', '.join(_KNOWN)} with the $filter RunId eq 'job' are covered")
    last_minute = (int(parse_timespan(span)[1]) - 1) // 60 * 60
    job, values = get_job(request.app[WORKSPACE].database.read, condition[1]), dict[str, float]()
    if job is not None and job.status is JobStatus.RUNNING:
        used = await asyncio.to_thread(psutil.cpu_percent, _MEASURED_SECONDS)
        values = {_CPU: used, _MEMORY: psutil.virtual_memory().percent}
    metrics: list[dict[str, Any]] = []
    for name in names:
        point = {"timeStamp": iso(last_minute), "average": values.get(name)}
        series = [{"metadatavalues": [], "data": [point]}] if name in values else []
        metrics.append({"name": {"value": name}, "unit": "Count", "timeseries": series})
    return web.json_response({"timespan": span, "interval": "PT1M", "value": metrics})
