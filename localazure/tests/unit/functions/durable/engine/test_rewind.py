"""The events that a rewind removes from a failed history."""

from __future__ import annotations

from harness.durable_records import AT
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.rewind import rewind

END = history.execution_completed(AT, status="Failed", result="x")


def scheduled(event_id: int, retry_of: int | None = None) -> Event:
    event = history.task_scheduled(AT, event_id, name="act", input_json=None)
    return event if retry_of is None else {**event, "RetryOf": retry_of}


def pause(event_id: int, retry_of: int) -> Event:
    return {**history.timer_created(AT, event_id, AT), "RetryOf": retry_of}


def fired(event_id: int) -> Event:
    return history.timer_fired(AT, event_id, AT)


def failed(event_id: int) -> Event:
    return history.task_failed(AT, event_id, reason="no", details="")


def done(event_id: int) -> Event:
    return history.task_completed(AT, event_id, "1")


def test_a_failure_that_was_acted_upon_stays() -> None:
    kept = [scheduled(0), failed(0)]
    assert rewind([*kept, scheduled(1), failed(1), END]).events == kept


def test_successful_siblings_stay() -> None:
    events = [scheduled(0), scheduled(1), failed(1), done(0), END]
    assert rewind(events).events == [scheduled(0), done(0)]


def test_a_retry_that_succeeded_stays() -> None:
    retried = [scheduled(0), scheduled(1), failed(0), pause(2, 0), fired(2), scheduled(3, 0)]
    rewound = rewind([*retried, done(3), failed(1), END]).events
    assert rewound == [*[event for event in retried if event != scheduled(1)], done(3)]


def test_a_sub_orchestration_is_rewound_itself() -> None:
    created = history.sub_orchestration_created(
        AT, 0, name="child", version=None, instance_id="c", input_json=None
    )
    failure = history.sub_orchestration_failed(AT, 0, reason="no", details="")
    rewound = rewind([created, failure, END])
    assert (rewound.events, rewound.open_steps) == ([created], [created])
    assert rewind([created, failure, END], lambda child: child == "c").events == []


def test_open_steps_are_those_without_an_end() -> None:
    timer, fired_timer = history.timer_created(AT, 2, AT), history.timer_created(AT, 3, AT)
    events = [scheduled(0), done(0), scheduled(1), timer, fired_timer, fired(3), END]
    assert rewind(events).open_steps == [scheduled(1), timer]
