from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handlers.platform.event_envelope import EventEnvelope, from_message
from orchestrations.errors import InvalidEvent

TIME = datetime(2026, 11, 22, 7, 0, 0, 123456, tzinfo=UTC)
CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "source": "/storageAccounts/a",
    "type": "T",
    "subject": "s",
    "time": "2026-11-22T07:00:00.1234567Z",
    "data": {"a": 1},
}
GRID: dict[str, Any] = {
    "id": "e1",
    "topic": "/storageAccounts/a",
    "eventType": "T",
    "subject": "s",
    "eventTime": "2026-11-22T16:00:00.123456+09:00",
    "data": {"a": 1},
    "dataVersion": "1",
    "metadataVersion": "1",
}


@pytest.mark.parametrize("document", [CLOUD, GRID])
def test_both_schemas_say_the_same(document: dict[str, Any]) -> None:
    assert from_message(json.dumps(document).encode()) == EventEnvelope(
        id="e1", type="T", source="/storageAccounts/a", subject="s", time=TIME, data={"a": 1}
    )


def test_a_cloud_event_may_come_with_a_trace() -> None:
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    traced = json.dumps(CLOUD | {"traceparent": header}).encode()
    assert from_message(traced).traceparent == header
    for broken in ("nonsense", 7, None, [header]):
        body = json.dumps(CLOUD | {"traceparent": broken}).encode()
        assert from_message(body).traceparent is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"time": "soon"}, "event e1: time is 'soon', not a time"),
        ({"type": None}, "event e1: type is None"),
        ({"id": 7}, "id is 7"),
        ({"subject": ["s"]}, "subject"),
    ],
)
def test_what_is_missing_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidEvent, match=words):
        from_message(json.dumps(CLOUD | changes).encode())


@given(st.binary() | st.text().map(str.encode))
@example(b"[" * 100_000)
def test_no_body_breaks_the_parser(body: bytes) -> None:
    with pytest.raises(InvalidEvent):
        from_message(body)
