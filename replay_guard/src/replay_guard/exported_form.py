"""Reads an exported history (`redaction.redact`), which has the events of the public HTTP API.

https://learn.microsoft.com/azure/azure-functions/durable/durable-functions-http-api and, for
details, DurableClient.GetDurableOrchestrationStatusAsync of the extension. In this form

- the ids of events and the marks of episodes are left out
- the end of an activity or child carries its name, its input and, as ScheduledTime, its beginning;
  the event of the beginning is left out, and a child's instance id with it
- TimerFired carries FireAt and no id; TimerCreated stays
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, cast

from replay_guard.history import (
    PARENT,
    VERSION,
    Arrival,
    CannotCheck,
    Document,
    EventType,
    History,
    NotTold,
    Step,
    StepKind,
    event,
    parse_time,
)
from replay_guard.payload import NOT_RECORDED, Payload
from replay_guard.redaction import FORMAT

_ENDS: Final = {
    "TaskCompleted": (StepKind.ACTIVITY, EventType.TASK_COMPLETED, False),
    "TaskFailed": (StepKind.ACTIVITY, EventType.TASK_FAILED, True),
    "SubOrchestrationInstanceCompleted": (
        StepKind.CHILD,
        EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED,
        False,
    ),
    "SubOrchestrationInstanceFailed": (
        StepKind.CHILD,
        EventType.SUB_ORCHESTRATION_INSTANCE_FAILED,
        True,
    ),
}
_SCHEDULED: Final = {
    "TaskScheduled": StepKind.ACTIVITY,
    "SubOrchestrationInstanceCreated": StepKind.CHILD,
}
# The protocol between the Durable extension and the worker (replay schema 3).
_PROTOCOL: Final[Document] = {"upperSchemaVersion": 1, "upperSchemaVersionNew": 2}
# The longest timer of Azure Storage: with this limit the SDK splits longer timers.
_LONGEST_TIMER: Final = timedelta(days=6)
_TIMER_LIMITS: Final[Document] = {
    "maximumShortTimerDuration": "6.00:00:00",
    "longRunningTimerIntervalDuration": "3.00:00:00",
}


def is_exported(document: Document) -> bool:
    """Whether a document is of this form."""
    return "historyEvents" in document


def read(document: Document) -> History:
    """Read the history.

    Raises:
        CannotCheck: the document is damaged, or its history cannot be replayed.
    """
    if document.get("replayGuard") != FORMAT:
        raise CannotCheck(
            "the file was not written by `replay-guard export` of this version: export it again"
        )
    reader = _Reader()
    events = document["historyEvents"]
    if not isinstance(events, list):
        raise CannotCheck("historyEvents is not a list: export the history again")
    for number, line in enumerate(cast("list[Any]", events)):
        if not isinstance(line, dict):
            raise CannotCheck(f"historyEvents[{number}] is not an object: export it again")
        reader.take(number, cast("Document", line))
    return reader.history(document)


class _Reader:
    """Collects steps and arrivals, event by event."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._open_timers: list[int] = []
        self._arrivals: list[Arrival] = []
        self._suspended_after: int | None = None

    def take(self, number: int, line: Document) -> None:  # noqa: C901 - one case an event
        where = f"historyEvents[{number}]"
        kind = _text(line, "EventType", where)
        at = parse_time(_text(line, "Timestamp", where))
        match kind:
            case "ExecutionStarted":
                self._start(line, at, where)
            case "TaskScheduled" | "SubOrchestrationInstanceCreated":
                self._steps.append(_scheduled(_SCHEDULED[kind], line, at, where))
            case "TimerCreated":
                self._open_timers.append(len(self._steps))
                self._steps.append(_timer(line, at, where))
            case "TimerFired":
                self._fire(line, at, where)
            case "EventSent":
                self._steps.append(_sent(line, at, where))
            case "EventRaised":
                self._raise(line, at, where)
            case "ExecutionSuspended":
                self._suspended_after = len(self._arrivals)
            case "ExecutionResumed":
                self._suspended_after = None
            case "GenericEvent":
                raise NotTold(
                    f"{where}: the instance was rewound, and its history no longer tells all steps"
                )
            case "ExecutionCompleted" | "ExecutionFailed" | "ExecutionTerminated" | "ContinueAsNew":
                pass  # they do not wake the orchestrator up
            case _ if kind in _ENDS:
                self._end(line, at, where)
            case _:
                raise CannotCheck(f"{where}: the event type {kind!r} is not known")

    def history(self, document: Document) -> History:
        where = "the file"
        name = _text(document, "name", where)
        if not self._arrivals:
            raise NotTold(f"the history of {name!r} has not begun: it has no ExecutionStarted")
        status = _text(document, "runtimeStatus", where)
        input_ = document.get("input")
        # Events that arrive while an instance is suspended are delivered when it is resumed.
        arrivals = self._arrivals[: self._suspended_after]
        if status != "Terminated":  # that instance may end before its last status is saved
            arrivals[-1] = replace(
                arrivals[-1], custom_status=_payload(document, "customStatus", where)
            )
        # Steps are numbered in the order in which they were scheduled.
        order = sorted(range(len(self._steps)), key=lambda index: self._steps[index].at)
        place = {old: new for new, old in enumerate(order)}
        steps = [self._steps[index] for index in order]
        return History(
            instance_id=_text(document, "instanceId", where),
            orchestrator=name,
            input=input_,
            arrivals=[_moved(each, place) for each in arrivals],
            steps=steps,
            status=status,
            output=_payload(document, "output", where),
            version=_optional_text(document, "version", where),
            not_recorded=frozenset({PARENT, VERSION}),
            times=_times(document),
            options=_PROTOCOL | ({} if _has_unsplit_timers(steps) else _TIMER_LIMITS),
        )

    def _start(self, line: Document, at: datetime, where: str) -> None:
        if self._arrivals:
            raise CannotCheck(f"{where}: the history begins twice")
        name = _text(line, "FunctionName", where)
        self._arrive(Arrival(event=event(EventType.EXECUTION_STARTED, at, Name=name), at=at), where)

    def _end(self, line: Document, at: datetime, where: str) -> None:
        kind, event_kind, failed = _ENDS[line["EventType"]]
        begun = parse_time(_text(line, "ScheduledTime", where))
        fields: Document = (
            {key: line.get(key) for key in ("Reason", "Details", "FailureDetails")}
            if failed
            else {"Result": json.dumps(line["Result"]) if "Result" in line else None}
        )
        self._arrive(
            Arrival(
                event=event(event_kind, at, **fields),
                at=at,
                ends=len(self._steps),
                failed=failed,
            ),
            where,
        )
        self._steps.append(_scheduled(kind, line, begun, where))

    def _fire(self, line: Document, at: datetime, where: str) -> None:
        fire_at = parse_time(_text(line, "FireAt", where))
        for index in self._open_timers:
            if self._steps[index].fire_at == fire_at:
                self._open_timers.remove(index)
                fired = event(EventType.TIMER_FIRED, at, FireAt=line["FireAt"])
                self._arrive(Arrival(event=fired, at=at, ends=index), where)
                return
        raise CannotCheck(f"{where}: TimerFired has no TimerCreated with the same FireAt")

    def _raise(self, line: Document, at: datetime, where: str) -> None:
        input_ = line.get("Input")
        if input_ is not None and not isinstance(input_, str):
            input_ = json.dumps(input_)
        raised = event(EventType.EVENT_RAISED, at, Name=_text(line, "Name", where), Input=input_)
        self._arrive(Arrival(event=raised, at=at), where)

    def _arrive(self, arrival: Arrival, where: str) -> None:
        if not self._arrivals and arrival.event["EventType"] != EventType.EXECUTION_STARTED:
            raise CannotCheck(f"{where}: an event comes before ExecutionStarted")
        self._arrivals.append(arrival)


def _scheduled(kind: StepKind, line: Document, at: datetime, where: str) -> Step:
    name_key = "FunctionName" if line.get("FunctionName") else "Name"
    name = _text(line, name_key, where)
    event_kind = (
        EventType.TASK_SCHEDULED
        if kind is StepKind.ACTIVITY
        else EventType.SUB_ORCHESTRATION_INSTANCE_CREATED
    )
    instance_id = _optional_text(line, "InstanceId", where) if kind is StepKind.CHILD else None
    return Step(
        kind=kind,
        name=name,
        at=at,
        event=event(event_kind, at, Name=name, InstanceId=instance_id),
        input=_payload(line, "Input", where),
        instance_id=instance_id,
    )


def _timer(line: Document, at: datetime, where: str) -> Step:
    return Step(
        kind=StepKind.TIMER,
        name="",
        at=at,
        event=event(EventType.TIMER_CREATED, at, FireAt=_text(line, "FireAt", where)),
        fire_at=parse_time(line["FireAt"]),
    )


def _sent(line: Document, at: datetime, where: str) -> Step:
    target = _text(line, "InstanceId", where)
    request = line.get("Request")
    if not isinstance(request, dict):
        raise NotTold(
            f"{where}: EventSent has no request, so its answer is unknown: the task hub "
            "does not keep inputs (see docs, storeInputsInOrchestrationHistory)"
        )
    sent = cast("Document", request)
    return Step(
        kind=StepKind.OPERATION,
        name=f"{target} {sent.get('op')}",
        at=at,
        event=event(EventType.EVENT_SENT, at, InstanceId=target, Name="op", Input=json.dumps(sent)),
        input=_payload(line, "Input", where),
    )


def _times(document: Document) -> tuple[datetime, ...]:
    texts = document.get("times", [])
    if not isinstance(texts, list) or not all(
        isinstance(each, str) for each in cast("list[Any]", texts)
    ):
        raise CannotCheck("times is not a list of texts: export the history again")
    times: list[datetime] = []
    for each in cast("list[str]", texts):
        with contextlib.suppress(CannotCheck):  # it only looks like a time
            times.append(parse_time(each))
    return tuple(times)


def _has_unsplit_timers(steps: list[Step]) -> bool:
    """Whether the backend has no limit for timers: it keeps timers that others would split."""
    return any(
        step.fire_at is not None and step.fire_at - step.at > _LONGEST_TIMER for step in steps
    )


def _moved(arrival: Arrival, place: dict[int, int]) -> Arrival:
    if arrival.ends is None:
        return arrival
    return replace(arrival, ends=place[arrival.ends])


def _payload(line: Document, key: str, where: str) -> Payload:
    if key in line:
        return Payload.of(line[key])
    hashed = _optional_text(line, f"{key}Sha256", where)
    return Payload(hashed) if hashed else NOT_RECORDED


def _text(line: Document, key: str, where: str) -> str:
    value = line.get(key)
    if not isinstance(value, str) or not value:
        raise CannotCheck(f"{where}: {key} is {value!r}, it must be a text: export it again")
    return value


def _optional_text(line: Document, key: str, where: str) -> str | None:
    return None if line.get(key) is None else _text(line, key, where)
