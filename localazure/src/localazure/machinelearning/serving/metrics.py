"""Metrics of online endpoints in the form of Azure Monitor. Pure.

https://learn.microsoft.com/rest/api/monitor/metrics/list and
https://learn.microsoft.com/azure/azure-monitor/reference/supported-metrics/microsoft-machinelearningservices-workspaces-onlineendpoints-metrics
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from localazure.machinelearning.errors import invalid
from localazure.machinelearning.serving.request_counts import MinuteCounts

Counted = tuple[str, int, MinuteCounts]
"""Deployment, minute (epoch seconds), and counts of its requests."""

_CONDITION = re.compile(r"^\s*(?P<dimension>\w+)\s+eq\s+'(?P<value>[^']*)'\s*$", re.IGNORECASE)
_DIMENSIONS = ("deployment", "statusCode", "statusCodeClass", "modelStatusCode")
ANY = "*"


@dataclass(frozen=True)
class _Metric:
    """A metric: its unit, its dimensions, and its value over one minute."""

    unit: str
    dimensions: Sequence[str]
    value: Callable[[MinuteCounts], float | None]


def _latency(value: Callable[[MinuteCounts], float | None]) -> _Metric:
    return _Metric("Milliseconds", ("deployment",), value)


_METRICS = {
    "RequestsPerMinute": _Metric(
        "Count", _DIMENSIONS, lambda counts: float(counts.statuses.total())
    ),
    "RequestLatency": _latency(MinuteCounts.mean_ms),
    **{
        f"RequestLatency_P{percent}": _latency(partial(MinuteCounts.percentile_ms, percent=percent))
        for percent in (50, 90, 95, 99)
    },
}


def parse_filter(text: str) -> dict[str, str]:
    """Parse a `$filter`: dimension → value, or `*` for one series per value.

    Raises:
        ArmError: 400, the filter is not `dimension eq 'value'`, joined by `and`.
    """
    conditions: dict[str, str] = {}
    for part in re.split(r"\s+and\s+", text, flags=re.IGNORECASE) if text.strip() else ():
        match = _CONDITION.match(part)
        names = {name.lower(): name for name in _DIMENSIONS}
        if match is None or match["dimension"].lower() not in names:
            raise invalid(
                f"$filter: {part!r} is not covered; use dimension eq 'value' joined by and, with "
                f"the dimensions {', '.join(_DIMENSIONS)}"
            )
        conditions[names[match["dimension"].lower()]] = match["value"]
    return conditions


def parse_timespan(text: str) -> tuple[float, float]:
    """Parse `2026-11-22T14:00:00Z/2026-11-22T15:00:00Z` to start and end, epoch seconds.

    Raises:
        ArmError: 400, the text is not a time span.
    """
    first, _, last = text.partition("/")
    try:
        moments = [datetime.fromisoformat(each) for each in (first, last)]
    except ValueError as error:
        raise invalid(f"timespan {text!r} is not two ISO 8601 times with a slash") from error
    start, end = (each.replace(tzinfo=each.tzinfo or UTC).timestamp() for each in moments)
    return start, end


def describe_metric(
    resource_id: str, name: str, conditions: dict[str, str], counted: Sequence[Counted]
) -> dict[str, Any]:
    """A metric in the response: a series per combination of values of the `*` dimensions.

    Raises:
        ArmError: 400, the metric does not exist, or does not have the dimension.
    """
    metric = _METRICS.get(name)
    if metric is None:
        raise invalid(f"there is no metric {name!r}; there are {', '.join(_METRICS)}")
    unknown = [each for each in conditions if each not in metric.dimensions]
    if unknown:
        raise invalid(f"metric {name} has no dimension {unknown[0]!r}")
    split = [dimension for dimension, value in conditions.items() if value == ANY]
    series: dict[tuple[str, ...], dict[int, MinuteCounts]] = {}
    for deployment, minute, counts in counted:
        for dimensions, part in _parts(deployment, counts, by_status=len(metric.dimensions) > 1):
            if all(
                value in (ANY, dimensions[dimension]) for dimension, value in conditions.items()
            ):
                key = tuple(dimensions[dimension] for dimension in split)
                series.setdefault(key, {}).setdefault(minute, MinuteCounts()).merge(part)
    return {
        "id": f"{resource_id}/providers/Microsoft.Insights/metrics/{name}",
        "type": "Microsoft.Insights/metrics",
        "name": {"value": name, "localizedValue": name},
        "unit": metric.unit,
        "errorCode": "Success",
        "timeseries": [
            {
                "metadatavalues": [
                    {"name": {"value": dimension, "localizedValue": dimension}, "value": value}
                    for dimension, value in zip(split, key, strict=True)
                ],
                "data": [
                    {"timeStamp": iso(minute), "average": metric.value(counts)}
                    for minute, counts in sorted(minutes.items())
                ],
            }
            for key, minutes in sorted(series.items())
        ],
    }


def _parts(
    deployment: str, counts: MinuteCounts, *, by_status: bool
) -> list[tuple[dict[str, str], MinuteCounts]]:
    """The requests of one minute by all dimensions; latencies are not recorded by status."""
    if not by_status:
        return [({"deployment": deployment}, counts)]
    parts: list[tuple[dict[str, str], MinuteCounts]] = []
    for (status, model_status), count in counts.statuses.items():
        part = MinuteCounts()
        part.statuses[status, model_status] = count
        dimensions = {
            "deployment": deployment,
            "statusCode": str(status),
            "statusCodeClass": f"{status // 100}xx",
            "modelStatusCode": str(model_status or ""),
        }
        parts.append((dimensions, part))
    return parts


def iso(seconds: int) -> str:
    """Format epoch seconds as Azure Monitor formats times."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
