"""Timers, versions, settings, the history codec, function names and the short form of history."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.durable.api import status
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.tasks import Awaited, all_of, any_of
from localazure.functions.durable.engine.versioning import (
    MatchStrategy,
    accepts,
    compare,
)
from localazure.functions.durable.runtime.timers import TimerQueue
from localazure.functions.durable.store.records import Timer

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=60), st.data())
def test_timers_fire_once_in_order_unless_forgotten(
    added: list[tuple[int, int]], data: st.DataObject
) -> None:
    queue = TimerQueue()
    for event_id, (execution, second) in enumerate(added):
        fire_at = history.timestamp(EPOCH + timedelta(seconds=second))
        queue.add(
            Timer(instance_id="i", execution_id=f"{execution}", event_id=event_id, fire_at=fire_at)
        )
    forgotten = data.draw(st.sets(st.integers(0, 4)))
    for execution in forgotten:
        queue.forget(f"{execution}")
    expected = sorted(second for execution, second in added if execution not in forgotten)
    fired: list[Timer] = []
    for second in (30, 30, 100):
        now = EPOCH + timedelta(seconds=second)
        fired += queue.pop_due(now)
        assert len(fired) == sum(due <= second for due in expected)
        left = [due for due in expected if due > second]
        assert queue.next_due() == (EPOCH + timedelta(seconds=left[0]) if left else None)
    assert [timer.fire_at for timer in fired] == [
        history.timestamp(EPOCH + timedelta(seconds=second)) for second in expected
    ]
    assert len(queue) == 0


@given(st.lists(st.builds(history.event_raised, st.just("t"), st.text(), st.text()), max_size=5))
def test_history_survives_its_encoding(events: list[history.Event]) -> None:
    assert history.decode(history.encode(events)) == events
    stored_by_version_0 = history.encode(history.played(events, is_played=True))
    assert history.decode(stored_by_version_0) == events


@given(st.lists(st.booleans(), max_size=6))
def test_compounds_of_ended_and_open_parts(ended: list[bool]) -> None:
    parts = [Awaited() for _ in ended]
    for part, is_ended in zip(parts, ended, strict=True):
        if is_ended:
            part.complete()
    first, whole = any_of(parts), all_of(parts)
    assert first.done is (any(ended) or not ended)
    assert whole.done is all(ended)
    for part in parts:
        part.complete(failed=True)
    assert first.done
    assert whole.done


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (None, None, 0),
        (None, "1.0", -1),
        ("1.0", "", 1),
        ("1.9", "1.10", -1),
        ("2", "10", -1),
        ("b", "A", 1),
        ("1.0-beta", "1.0-BETA", 0),
    ],
)
def test_versions_compare(left: str | None, right: str | None, expected: int) -> None:
    assert compare(left, right) == expected
    assert compare(right, left) == -expected


def test_versions_match() -> None:
    current = MatchStrategy.CURRENT_OR_OLDER
    assert accepts(None, "9", MatchStrategy.STRICT)
    assert accepts("1", "9", MatchStrategy.NONE)
    assert not accepts("1", "9", MatchStrategy.STRICT)
    assert not accepts("1", None, MatchStrategy.STRICT)
    assert accepts("2", "1", current)
    assert accepts("2", None, current)
    assert not accepts("2", "3", current)


def test_short_form_of_history() -> None:
    events = [
        history.orchestrator_started("1"),
        history.task_scheduled("2", 0, name="act", input_json="1"),
        history.task_scheduled("2", 1, name="slow", input_json="1"),
        history.timer_created("2", 2, "9"),
        history.orchestrator_completed("3"),
        history.task_completed("4", 0, '{"a": 1}'),
        history.timer_fired("9", 2, "9"),
    ]
    assert status.compact(events, show_input=True, show_output=True) == [
        {"EventType": "TaskScheduled", "Timestamp": "2", "Name": "slow", "Input": "1"},
        {"EventType": "TimerCreated", "Timestamp": "2", "FireAt": "9"},
        {
            "EventType": "TaskCompleted",
            "Timestamp": "4",
            "ScheduledTime": "2",
            "FunctionName": "act",
            "Input": "1",
            "Result": {"a": 1},
        },
        {"EventType": "TimerFired", "Timestamp": "9", "FireAt": "9"},
    ]
    short = status.compact(events, show_input=False, show_output=False)
    assert not any("Result" in line or "Input" in line for line in short)


def test_short_form_of_what_version_2_of_the_sdk_records() -> None:
    """Attempts of a call have one id; messages of entities are shown as on Azure."""
    failed = history.task_failed("2", 1, reason="busy", details="")
    call = {"Operation": "add", "RequestId": "r", "Input": "2", "TargetInstanceId": "@n@k"}
    events = [
        history.task_scheduled("1", 1, name="act", input_json="1"),
        {**failed, "FailureDetails": {"errorType": "Busy"}},
        history.task_scheduled("3", 1, name="act", input_json="1"),
        history.task_completed("4", 1, "5"),
        {
            "EventType": history.EventType.ENTITY_OPERATION_CALLED,
            "EventId": 2,
            "Timestamp": "4",
            **call,
        },
        {
            "EventType": history.EventType.ENTITY_OPERATION_COMPLETED,
            "EventId": -1,
            "Timestamp": "5",
            "RequestId": "r",
            "Output": "7",
        },
    ]
    first, second, sent, raised = status.compact(events, show_input=True, show_output=True)
    assert (first["ScheduledTime"], first["FailureDetails"]) == ("1", {"errorType": "Busy"})
    assert (second["ScheduledTime"], second["Result"]) == ("3", 5)
    assert (sent["EventType"], sent["InstanceId"]) == ("EventSent", "@n@k")
    assert json.loads(sent["Input"]) == {"op": "add", "id": "r", "input": "2", "signal": False}
    assert (raised["EventType"], raised["Name"]) == ("EventRaised", "r")
    assert json.loads(raised["Input"]) == {"result": "7"}
