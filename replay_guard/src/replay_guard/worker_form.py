"""Reads a history in the form of the Functions worker: the SDK's orchestrator-in document.

A document is either orchestrator-in itself (`history`, `input`, `instanceId`, ...) or a recorded
call of the orchestrator:

| key | holds |
|---|---|
| `trigger` | the orchestrator-in document of the last episode |
| `answer` | the orchestrator-out document that answered it; may be left out |
| `episodes` | for each episode an object with its `customStatus`; may be left out |

An episode is the execution between two waits. It has OrchestratorStarted, the events that arrived,
the steps from the orchestrator's answer, and OrchestratorCompleted. The last episode has no steps
yet: the worker is to answer it.
"""

from __future__ import annotations

from typing import Any, Final, cast

from replay_guard.history import (
    HTTP_ACTIVITY,
    Arrival,
    CannotCheck,
    Document,
    EventType,
    History,
    Step,
    StepKind,
    parse_time,
)
from replay_guard.payload import NOT_RECORDED, Payload, parse
from replay_guard.redaction import activity_input, arguments_are_in_arrays, child_input

_STEPS: Final = {
    EventType.TASK_SCHEDULED: StepKind.ACTIVITY,
    EventType.SUB_ORCHESTRATION_INSTANCE_CREATED: StepKind.CHILD,
    EventType.TIMER_CREATED: StepKind.TIMER,
    EventType.EVENT_SENT: StepKind.OPERATION,
}
_ENDS: Final = {
    EventType.TASK_COMPLETED: "TaskScheduledId",
    EventType.TASK_FAILED: "TaskScheduledId",
    EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED: "TaskScheduledId",
    EventType.SUB_ORCHESTRATION_INSTANCE_FAILED: "TaskScheduledId",
    EventType.TIMER_FIRED: "TimerId",
}
_FAILURES: Final = frozenset({EventType.TASK_FAILED, EventType.SUB_ORCHESTRATION_INSTANCE_FAILED})
_WAKES: Final = frozenset({EventType.EXECUTION_STARTED, EventType.EVENT_RAISED, *_ENDS})
_OPTIONS_LEFT_OUT: Final = frozenset(
    {"history", "input", "instanceId", "isReplaying", "parentInstanceId"}
)


def read(document: Document) -> History:
    """Read the history.

    Raises:
        CannotCheck: the document is of another form, or damaged.
    """
    trigger = document.get("trigger", document)
    if not isinstance(trigger, dict) or not isinstance(
        cast("Document", trigger).get("history"), list
    ):
        raise CannotCheck(
            "this is neither an exported history nor an orchestrator-in document: it has neither "
            "historyEvents nor history"
        )
    try:
        return _read(document, cast("Document", trigger))
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise CannotCheck(f"the orchestrator-in document is damaged: {error!r}") from error


def _read(document: Document, trigger: Document) -> History:
    events: list[Document] = trigger["history"]
    in_arrays = arguments_are_in_arrays(
        [
            each["Input"]
            for each in events
            if each["EventType"] == EventType.TASK_SCHEDULED
            and each.get("Input") is not None
            and each["Name"] != HTTP_ACTIVITY
        ]
    )
    steps = sorted(
        (
            _step(each, arguments_in_arrays=in_arrays)
            for each in events
            if each["EventType"] in _STEPS
        ),
        key=lambda step: cast("int", step.event_id),
    )
    index_of = {step.event_id: index for index, step in enumerate(steps)}
    started = next(each for each in events if each["EventType"] == EventType.EXECUTION_STARTED)
    episodes = _split(events)
    statuses: list[Document] = document.get("episodes") or []
    arrivals: list[Arrival] = []
    scheduled = 0
    for number, episode in enumerate(episodes):
        woken_by = [each for each in episode if each["EventType"] in _WAKES]
        scheduled += sum(1 for each in episode if each["EventType"] in _STEPS)
        for place, each in enumerate(woken_by):
            is_last = place == len(woken_by) - 1
            is_open = number == len(episodes) - 1
            arrivals.append(
                Arrival(
                    event={
                        key: value
                        for key, value in each.items()
                        if key not in {"IsPlayed", _ENDS.get(each["EventType"])}
                    },
                    at=parse_time(each["Timestamp"]),
                    ends=index_of[each[_ENDS[each["EventType"]]]]
                    if each["EventType"] in _ENDS
                    else None,
                    failed=each["EventType"] in _FAILURES,
                    clock=parse_time(episode[0]["Timestamp"]),
                    steps_after=scheduled if is_last and not is_open else None,
                    custom_status=Payload.of(statuses[number]["customStatus"])
                    if is_last and number < len(statuses)
                    else NOT_RECORDED,
                )
            )
    return History(
        instance_id=trigger["instanceId"],
        orchestrator=started["Name"],
        input=trigger.get("input"),
        arrivals=arrivals,
        steps=steps,
        version=started.get("Version"),
        parent_instance_id=trigger.get("parentInstanceId"),
        options={key: value for key, value in trigger.items() if key not in _OPTIONS_LEFT_OUT},
        answer=document.get("answer"),
    )


def _split(events: list[Document]) -> list[list[Document]]:
    episodes: list[list[Document]] = []
    for each in events:
        if each["EventType"] == EventType.ORCHESTRATOR_STARTED:
            episodes.append([])
        episodes[-1].append(each)
    return episodes


def _step(event: Document, *, arguments_in_arrays: bool) -> Step:
    kind = _STEPS[event["EventType"]]
    kept = {key: value for key, value in event.items() if key not in {"IsPlayed", "EventId"}}
    request: Any = parse(event["Input"]) if kind is StepKind.OPERATION else None
    name = event.get("Name") or ""
    if kind is StepKind.OPERATION:
        name = f"{event['InstanceId']} {request['op']}"
    return Step(
        kind=kind,
        name="" if kind is StepKind.TIMER else name,
        at=parse_time(event["Timestamp"]),
        event=kept,
        event_id=event["EventId"],
        input=_input(kind, event, request, arguments_in_arrays=arguments_in_arrays),
        fire_at=parse_time(event["FireAt"]) if kind is StepKind.TIMER else None,
        version=event.get("Version") if kind is StepKind.CHILD else None,
        instance_id=event.get("InstanceId") if kind is StepKind.CHILD else None,
    )


def _input(kind: StepKind, event: Document, request: Any, *, arguments_in_arrays: bool) -> Payload:
    stored = event.get("Input")
    if kind is StepKind.OPERATION:
        return Payload.of(child_input(request.get("input")))
    if kind is StepKind.TIMER or stored is None:
        return NOT_RECORDED
    if kind is StepKind.CHILD:
        return Payload.of(child_input(stored))
    if event["Name"] == HTTP_ACTIVITY and arguments_in_arrays:
        return NOT_RECORDED  # the extension's own form of a request
    return Payload.of(activity_input(stored, arguments_in_arrays=arguments_in_arrays))
