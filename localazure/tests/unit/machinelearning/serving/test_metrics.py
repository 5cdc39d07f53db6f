from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.serving.metrics import (
    describe_metric,
    parse_filter,
    parse_timespan,
)
from localazure.machinelearning.serving.request_counts import MinuteCounts


def counts(*requests: tuple[int, int, float]) -> MinuteCounts:
    made = MinuteCounts()
    for status, model_status, milliseconds in requests:
        made.add(status, model_status, milliseconds)
    return made


COUNTED = [
    ("blue", 60, counts((200, 200, 10.0), (200, 200, 20.0))),
    ("green", 60, counts((200, 200, 10.0), (424, 500, 300.0))),
    ("green", 120, counts((408, 0, 5000.0))),
]


def values(name: str, condition: str) -> dict[tuple[str, ...], list[float]]:
    metric = describe_metric("/e", name, parse_filter(condition), COUNTED)
    return {
        tuple(entry["value"] for entry in series["metadatavalues"]): [
            point["average"] for point in series["data"]
        ]
        for series in metric["timeseries"]
    }


def test_requests_are_split_by_the_dimensions_with_a_star() -> None:
    found = values("RequestsPerMinute", "deployment eq 'green' and statusCode eq '*'")
    assert found == {("200",): [1.0], ("424",): [1.0], ("408",): [1.0]}


def test_classes_of_statuses_and_the_models_own_status() -> None:
    assert values("RequestsPerMinute", "statusCodeClass eq '4xx'") == {(): [1.0, 1.0]}
    assert values("RequestsPerMinute", "modelStatusCode eq '500'") == {(): [1.0]}


def test_latencies_are_by_deployment() -> None:
    found = values("RequestLatency_P95", "deployment eq '*'")
    assert found["blue",] == [pytest.approx(20.0, rel=0.05)]
    assert found["green",] == [pytest.approx(300.0, rel=0.05), pytest.approx(5000.0, rel=0.05)]
    assert values("RequestLatency", "deployment eq 'blue'") == {(): [15.0]}


def test_a_series_has_azure_monitors_form() -> None:
    metric = describe_metric("/e", "RequestsPerMinute", {"deployment": "*"}, COUNTED[:1])
    series: list[dict[str, Any]] = metric["timeseries"]
    assert metric["unit"] == "Count"
    assert series == [
        {
            "metadatavalues": [
                {
                    "name": {"value": "deployment", "localizedValue": "deployment"},
                    "value": "blue",
                }
            ],
            "data": [{"timeStamp": "1970-01-01T00:01:00Z", "average": 2.0}],
        }
    ]


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("Unknown", ""),
        ("RequestLatency_P95", "statusCode eq '200'"),
        ("RequestsPerMinute", "deployment ne 'blue'"),
        ("RequestsPerMinute", "colour eq 'blue'"),
    ],
)
def test_what_is_not_covered_is_refused(name: str, condition: str) -> None:
    with pytest.raises(ArmError):
        values(name, condition)


def test_time_spans() -> None:
    assert parse_timespan("1970-01-01T00:01:00Z/1970-01-01T00:02:00+00:00") == (60.0, 120.0)
    with pytest.raises(ArmError, match="timespan"):
        parse_timespan("PT1H")
