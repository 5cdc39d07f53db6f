"""For any file, the reader gives a history or a reason why there is none."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay_guard.check import read_document
from replay_guard.history import CannotCheck, History
from replay_guard.management_api import ApiRefused, ManagementApi
from replay_guard.payload import digest
from replay_guard.redaction import redact

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
AT = "2026-01-01T00:00:0{}.1234567Z"
STATUS: dict[str, Any] = {
    "instanceId": "i",
    "name": "hello",
    "runtimeStatus": "Running",
    "input": "secret of the start",
    "customStatus": {"a": "secret status"},
    "output": None,
    "historyEvents": [
        {
            "EventType": "ExecutionStarted",
            "FunctionName": "hello",
            "Timestamp": AT.format(0),
            "Input": '"secret of the start"',
        },
        {
            "EventType": "TaskCompleted",
            "FunctionName": "greet",
            "ScheduledTime": AT.format(1),
            "Timestamp": AT.format(2),
            "Input": '["\\"secret input\\""]',
            "Result": "a result",
        },
        {"EventType": "TimerCreated", "Timestamp": AT.format(3), "FireAt": AT.format(8)},
        {"EventType": "EventRaised", "Timestamp": AT.format(4), "Name": "go", "Input": "1"},
    ],
}


def exported() -> dict[str, Any]:
    return redact(copy.deepcopy(STATUS), version=None, with_inputs=False)


def test_what_replay_needs_is_kept_and_the_rest_is_hashed() -> None:
    text = json.dumps(exported())
    for kept in ("secret of the start", "a result"):
        assert kept in text
    for hashed in ("secret input", "secret status"):
        assert hashed not in text
    assert exported()["historyEvents"][1]["InputSha256"] == digest("secret input")


def test_the_documented_form_is_read() -> None:
    history = read_document(exported())
    assert [str(step) for step in history.steps] == ["activity 'greet'", "a timer"]
    assert [arrival.ends for arrival in history.arrivals] == [None, 0, None]
    assert history.steps[0].input.fits("secret input")
    assert not history.steps[0].input.fits("another input")
    assert history.arrivals[2].event["Input"] == "1"


@given(
    place=st.integers(min_value=-1, max_value=3),
    key=st.sampled_from(
        ["EventType", "Timestamp", "ScheduledTime", "FireAt", "Name", "FunctionName"]
    )
    | st.sampled_from(["name", "instanceId", "runtimeStatus", "times", "historyEvents"]),
    value=JSON,
)
def test_a_damaged_file_is_refused_and_never_crashes(place: int, key: str, value: Any) -> None:
    document = exported()
    (document if place < 0 else document["historyEvents"][place])[key] = value
    try:
        assert isinstance(read_document(document), History)
    except CannotCheck as refusal:
        assert str(refusal)  # noqa: PT017 - either outcome is right


@given(JSON)
def test_any_document_is_read_or_refused(value: Any) -> None:
    for document in (
        {"replayGuard": 1, "historyEvents": value},
        {"trigger": value},
        {"history": value},
        {"trigger": {"history": value}},
    ):
        with pytest.raises(CannotCheck):
            read_document(document)


@given(value=JSON, other=JSON)
def test_equal_values_have_equal_digests_and_others_do_not(value: Any, other: Any) -> None:
    again = json.loads(json.dumps(value, indent=2, sort_keys=True))
    assert digest(again) == digest(value)
    if json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True) and value != other:
        assert digest(value) != digest(other)


def test_a_key_is_not_sent_over_http_to_another_host() -> None:
    with pytest.raises(ApiRefused, match="must be asked over https"):
        ManagementApi("http://app.example.org", key="secret")
    with pytest.raises(ApiRefused, match="not a URL of an app"):
        ManagementApi("ftp://app.example.org")
