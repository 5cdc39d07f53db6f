"""What only version 2 of the SDK does: it numbers retries, and compares the past itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from durabletask.entities import EntityInstanceId
from durabletask.task import RetryPolicy, TaskFailedError

from replay_guard import protocol
from replay_guard.check import read_document
from replay_guard.history import CannotCheck
from replay_guard.payload import digest
from replay_guard.replay import replay
from tests.replay.durable_task_orchestrator import create
from tests.replay.recording import Document

AT = "2026-01-01T00:00:0{}Z"
TWICE = RetryPolicy(first_retry_interval=timedelta(seconds=2), max_number_of_attempts=2)
FAILED = {
    "EventType": "TaskFailed",
    "FunctionName": "one",
    "Reason": "not now",
    "FailureDetails": {"ErrorType": "Busy", "ErrorMessage": "not now", "StackTrace": "line 1"},
}


def line(kind: str, at: int, began: int | None = None, **fields: Any) -> Document:
    begun = {} if began is None else {"ScheduledTime": AT.format(began)}
    return {"EventType": kind, "Timestamp": AT.format(at), **begun, **fields}


def exported(*lines: Document, **kept: Any) -> Document:
    started = line("ExecutionStarted", 0, FunctionName="orchestrator")
    return {
        "replayGuard": 1,
        "instanceId": "i",
        "name": "orchestrator",
        "runtimeStatus": "Running",
        **kept,
        "historyEvents": [started, *lines],
    }


def failing(at: int, began: int) -> Document:
    return line("TaskFailed", at, began, **{k: v for k, v in FAILED.items() if k != "EventType"})


def one() -> Document:
    return line("TaskCompleted", 1, 0, FunctionName="one", Result=1)


def retrying(context: Any) -> Any:
    try:
        yield context.call_activity_with_retry("one", TWICE, 5)
    except TaskFailedError as error:
        context.set_custom_status(f"{error.details.error_type}: {error.details.message}")
    yield context.call_activity("two", None)


RETRIED = (
    failing(1, 0),
    line("TimerCreated", 1, FireAt=AT.format(3)),
    line("TimerFired", 3, FireAt=AT.format(3)),
    failing(4, 3),
    line("TaskScheduled", 4, Name="two"),
)


def operating(context: Any) -> Any:
    total = yield context.call_entity(EntityInstanceId("counter", "k"), "add", {"by": 2})
    yield context.call_activity("one", total)


def operated(operation: str) -> tuple[Document, ...]:
    return (
        line(
            "EventSent",
            0,
            InstanceId="@counter@k",
            Request={"id": "r", "op": operation, "signal": False},
            Input={"by": 2},
        ),
        line("EventRaised", 1, Name="r", Input=json.dumps({"result": "7"})),
        line("TaskScheduled", 1, Name="one", InputSha256=digest(7)),
    )


def locking(context: Any) -> Any:
    native = getattr(context, "_ctx", context)  # the SDK's compatibility layer has no locks
    with (yield native.lock_entities([EntityInstanceId("counter", "k")])):
        yield context.call_activity("one", None)
    yield context.call_activity("two", None)


def locked(entity: str) -> tuple[Document, ...]:
    """The lock has another id than in replay, whose clock is only near the recorded one."""

    def sent(at: int) -> Document:
        return line("EventSent", at, InstanceId=entity, Request={"id": "of-then"}, Input=None)

    return (
        sent(0),
        line("EventRaised", 1, Name="of-then", Input='{"result": null}'),
        line("TaskCompleted", 3, 2, FunctionName="one", Result=1),
        sent(4),
        line("TaskScheduled", 4, Name="two"),
    )


def calling_child(context: Any) -> Any:
    yield context.call_sub_orchestrator("child", None, None)


def child_created(instance_id: str) -> Document:
    return line("SubOrchestrationInstanceCreated", 0, Name="child", InstanceId=instance_id)


drawn: list[int] = []


def drawing(context: Any) -> Any:
    drawn.append(len(drawn))
    yield context.call_activity("one" if len(drawn) < 3 else "another", None)
    yield context.call_activity("two", None)


def simple(context: Any) -> Any:
    yield context.call_activity("ONE", None)
    yield context.call_activity("two", None)


TWO = line("TaskScheduled", 1, Name="two")
CASES: dict[str, tuple[Callable[[Any], Any], Document, list[str]]] = {
    "retries": (retrying, exported(*RETRIED, customStatus="Busy: not now"), []),
    "an attempt less": (retrying, exported(*RETRIED[:4], failing(5, 4)), ["name"]),
    "interval of retries": (
        retrying,
        exported(RETRIED[0], line("TimerCreated", 1, FireAt=AT.format(5))),
        ["time of a timer"],
    ),
    "text of a failure": (retrying, exported(*RETRIED, customStatus="Busy"), ["customStatus"]),
    "operation": (operating, exported(*operated("add")), []),
    "another operation": (operating, exported(*operated("remove")), ["name"]),
    "lock": (locking, exported(*locked("@counter@k")), []),
    "another lock": (locking, exported(*locked("@counter@other")), ["name"]),
    "child with a generated id": (calling_child, exported(child_created("i:0001")), []),
    "child with a chosen id": (
        calling_child,
        exported(child_created("chosen")),
        ["instance id of sub-orchestration 'child'"],
    ),
    "chance": (drawing, exported(one(), TWO), ["determinism at arrival 1"]),
    "upper case": (simple, exported(one(), TWO), ["determinism at arrival 1"]),
}


@pytest.mark.parametrize("of", CASES)
def test_differences_are_those_of_version_2(of: str) -> None:
    orchestrator, document, expected = CASES[of]
    named = _named(orchestrator)
    result = replay(read_document(document), create(named), ask=protocol.ask)
    assert [each.what for each in result.differences] == expected, result


def sending(context: Any) -> Any:
    getattr(context, "_ctx", context).send_event("other", "wake up")
    yield context.call_activity("one", None)


REFUSED = {
    "an event to an instance": (sending, exported(), "the action sendEvent"),
    "a damaged failure": (
        retrying,
        exported({**failing(1, 0), "FailureDetails": {"ErrorMessage": 5}}),
        "the history is damaged",
    ),
}


@pytest.mark.parametrize("of", REFUSED)
def test_what_it_does_not_know_is_refused(of: str) -> None:
    orchestrator, document, why = REFUSED[of]
    with pytest.raises(CannotCheck, match=why):
        replay(read_document(document), create(_named(orchestrator)), ask=protocol.ask)


def _named(orchestrator: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def named(context: Any) -> Any:
        return (yield from orchestrator(context))

    named.__name__ = "orchestrator"
    return named
