"""Timers, versions, settings, the history codec, function names and the short form of history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from localazure import limits
from localazure.functions.durable.api import status
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.invocation import KnownFunctions
from localazure.functions.durable.engine.tasks import Awaited, all_of, any_of
from localazure.functions.durable.engine.versioning import (
    FailureStrategy,
    MatchStrategy,
    accepts,
    compare,
)
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.runtime.inboxes import Inboxes
from localazure.functions.durable.runtime.timers import TimerQueue
from localazure.functions.durable.store.records import Message, Timer, microseconds, moment

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


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_survive(at: datetime) -> None:
    assert history.parse_timestamp(history.timestamp(at)) == at
    assert moment(microseconds(at)) == at


def test_an_end_is_told_once() -> None:
    told: list[int] = []
    one = Awaited()
    one.then(lambda: told.append(1))
    one.complete()
    one.complete(failed=True)
    one.then(lambda: told.append(2))
    assert (told, one.failed) == ([1, 2], False)


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


def test_mailboxes_keep_order() -> None:
    mail = Inboxes()
    messages = [Message(target="a", event={"n": n}) for n in range(4)]
    for message in messages:
        mail.put(message)
    mail.remove("a", messages[1:3])
    assert list(mail.of("a")) == [messages[0], messages[3]]
    mail.clear("a")
    assert list(mail.of("a")) == []


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


def test_settings_of_host_json() -> None:
    options = DurableOptions.model_validate(
        {
            "hubName": "Hub",
            "maxConcurrentActivityFunctions": 3,
            "defaultVersion": "2.0",
            "versionMatchStrategy": "strict",
            "versionFailureStrategy": "Fail",
            "storageProvider": {"type": "azureManaged"},
            "httpSettings": {"defaultAsyncRequestSleepTimeMilliseconds": 5},
        }
    )
    assert (options.hub_name, options.default_version) == ("Hub", "2.0")
    assert options.max_concurrent_activity_functions == 3
    assert options.version_match_strategy is MatchStrategy.STRICT
    assert options.version_failure_strategy is FailureStrategy.FAIL
    assert options.http_polling_seconds == 0.005
    assert options.payload_limit_bytes == limits.DURABLE_SCHEDULER_PAYLOAD.value
    assert not options.is_in_azure_storage
    assert DurableOptions().is_in_azure_storage


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxConcurrentActivityFunctions", 0),
        ("maxConcurrentActivityFunctions", "many"),
        ("hubName", 1),
        ("versionMatchStrategy", "Sometimes"),
        ("versionFailureStrategy", "Never"),
    ],
)
def test_a_bad_setting_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=key):
        DurableOptions.model_validate({key: value})


def test_function_names_are_not_case_sensitive() -> None:
    known = KnownFunctions(activity=["SayHello"])
    assert known.resolve("activity", "sayhello") == "SayHello"
    assert known.resolve("orchestrator", "sayhello") is None
    assert known.missing("orchestrator", "x").endswith(
        "is not an orchestrator function. Additional info: "
        "No orchestrator functions are currently registered!"
    )


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
