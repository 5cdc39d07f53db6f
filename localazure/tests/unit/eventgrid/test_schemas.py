from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.eventgrid.schemas import (
    InvalidEvent,
    Schema,
    check,
    convert,
)

NOW = datetime(2026, 8, 8, 5, tzinfo=UTC)
EVENT: dict[str, Any] = {
    "id": "1",
    "topic": "/t",
    "subject": "/s",
    "eventType": "T",
    "eventTime": "2017-06-26T18:41:00.9584103Z",
    "data": {"a": [1]},
    "dataVersion": "2",
    "metadataVersion": "1",
}
CLOUD: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/t", "type": "T"}

words = st.text(min_size=1, max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
times = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
event_grid_events = st.fixed_dictionaries(
    {
        "id": words,
        "topic": words,
        "subject": st.text(max_size=20),
        "eventType": words,
        "eventTime": times,
        "data": json_values,
        "dataVersion": st.sampled_from(["", "1", "2.0"]),
        "metadataVersion": st.just("1"),
    }
)


@given(event_grid_events)
def test_conversion_to_cloud_events_and_back_changes_nothing(event: dict[str, Any]) -> None:
    assert check(event, Schema.EVENT_GRID, 0) == event
    cloud = convert(event, Schema.EVENT_GRID, Schema.CLOUD_EVENTS, published=NOW)
    assert check(cloud, Schema.CLOUD_EVENTS, 0) == cloud
    assert convert(cloud, Schema.CLOUD_EVENTS, Schema.EVENT_GRID, published=NOW) == event


def test_a_minimal_cloud_event_gets_the_fields_of_the_other_schema() -> None:
    event = convert(CLOUD, Schema.CLOUD_EVENTS, Schema.EVENT_GRID, published=NOW)
    assert check(event, Schema.EVENT_GRID, 0)["eventTime"] == "2026-08-08T05:00:00Z"
    assert (event["subject"], event["dataVersion"]) == ("", "")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "id"),
        ({"id": ""}, "id"),
        ({"subject": 1}, "subject"),
        ({"eventType": ""}, "eventType"),
        ({"eventTime": "yesterday"}, "eventTime"),
        ({"dataVersion": 1}, "dataVersion"),
        ({"metadataVersion": "2"}, "metadataVersion"),
        ({"topic": 5}, "topic"),
        ({"more": 1}, "more"),
    ],
)
def test_event_grid_error_names_index_and_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"event 3: .*{field}"):
        check({**EVENT, **change}, Schema.EVENT_GRID, 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"source": ""}, "source"),
        ({"type": None}, "type"),
        ({"subject": 1}, "subject"),
        ({"time": "noon"}, "time"),
        ({"data": 1, "data_base64": "AA=="}, "data_base64"),
        ({"Upper": "x"}, "Upper"),
    ],
)
def test_cloud_event_error_names_index_and_attribute(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidEvent, match=rf"event 1: .*{field}"):
        check({**CLOUD, **change}, Schema.CLOUD_EVENTS, 1)


@given(json_values)
def test_arbitrary_values_are_events_or_raise_invalid_event(value: object) -> None:
    for schema in Schema:
        with pytest.raises(InvalidEvent):
            check(value, schema, 0)
