"""History events in the wire format of azure-functions-durable, which the store uses, too.

An event is a JSON object with PascalCase keys, as the real extension serializes the history of the
Durable Task Framework (github.com/Azure/durabletask, DurableTask.Core/History). Two keys are our
own and are ignored by the SDK: `Actions` on OrchestratorStarted (the number of top-level actions
of the orchestrator when that episode ended) and `RetryOf` on the attempts and timers of a retry
policy (the event id of the first attempt).

The events of entities, from 101 on, are those of the Durable Task Scheduler's protocol. Functions
apps send an EventSent in their place. `FailureDetails` and `ParentTraceContext` are the protocol's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Final

Event = dict[str, Any]

NO_EVENT_ID = -1  # of events that have no sequence id, such as TaskCompleted


class EventType(IntEnum):
    """Numbers as in `azure.durable_functions.models.history.HistoryEventType`."""

    EXECUTION_STARTED = 0
    EXECUTION_COMPLETED = 1
    EXECUTION_FAILED = 2
    EXECUTION_TERMINATED = 3
    TASK_SCHEDULED = 4
    TASK_COMPLETED = 5
    TASK_FAILED = 6
    SUB_ORCHESTRATION_INSTANCE_CREATED = 7
    SUB_ORCHESTRATION_INSTANCE_COMPLETED = 8
    SUB_ORCHESTRATION_INSTANCE_FAILED = 9
    TIMER_CREATED = 10
    TIMER_FIRED = 11
    ORCHESTRATOR_STARTED = 12
    ORCHESTRATOR_COMPLETED = 13
    EVENT_SENT = 14
    EVENT_RAISED = 15
    CONTINUE_AS_NEW = 16
    GENERIC_EVENT = 17
    HISTORY_STATE = 18
    EXECUTION_SUSPENDED = 19
    EXECUTION_RESUMED = 20
    ENTITY_OPERATION_SIGNALED = 101
    ENTITY_OPERATION_CALLED = 102
    ENTITY_OPERATION_COMPLETED = 103
    ENTITY_OPERATION_FAILED = 104
    ENTITY_LOCK_REQUESTED = 105
    ENTITY_LOCK_GRANTED = 106
    ENTITY_UNLOCK_SENT = 107


ENTITY_MESSAGES: Final = frozenset(
    {
        EventType.ENTITY_OPERATION_SIGNALED,
        EventType.ENTITY_OPERATION_CALLED,
        EventType.ENTITY_LOCK_REQUESTED,
        EventType.ENTITY_UNLOCK_SENT,
    }
)
"""The events that record a message to an entity, and are that message."""

STEPS: Final = frozenset(
    {
        EventType.TASK_SCHEDULED,
        EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
        EventType.TIMER_CREATED,
        EventType.EVENT_SENT,
        *ENTITY_MESSAGES,
    }
)
"""The events that record a step of an orchestrator."""


def ended_step(event: Event) -> int | None:
    """Return the event id of the step that an event ends; None if it ends no step."""
    is_timer = event["EventType"] == EventType.TIMER_FIRED
    return event.get("TimerId" if is_timer else "TaskScheduledId")


def message_of(step: Event) -> tuple[str, Event] | None:
    """Return the receiver and the message of a step that sends one; None if it sends none."""
    kind = step["EventType"]
    if kind == EventType.EVENT_SENT:
        return step["InstanceId"], event_raised(step["Timestamp"], step["Name"], step["Input"])
    if kind == EventType.ENTITY_LOCK_REQUESTED:
        return step["LockSet"][step.get("Position") or 0], step
    if kind == EventType.EXECUTION_TERMINATED:  # of another instance
        message = execution_terminated(step["Timestamp"], step["Reason"])
        return step["InstanceId"], {**message, "Recurse": step["Recurse"]}
    return (step["TargetInstanceId"], step) if kind in ENTITY_MESSAGES else None


def context_of(step: Event, *fields: str) -> str | None:
    """Return the JSON object of a step's fields that have a value; None if none has."""
    context = {field: step[field] for field in fields if step.get(field)}
    return json.dumps(context) if context else None


def timestamp(moment: datetime) -> str:
    """Format a time as ISO 8601 in UTC, with microseconds and Z."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def parse_timestamp(text: str) -> datetime:
    """Parse the output of `timestamp`, or any ISO 8601 text; the default offset is UTC."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _event(kind: EventType, at: str, event_id: int = NO_EVENT_ID, /, **fields: object) -> Event:
    return {"EventType": int(kind), "EventId": event_id, "Timestamp": at, **fields}


def orchestrator_started(at: str) -> Event:
    """An episode began; the orchestrator's deterministic clock shows `at` (ISO 8601)."""
    return _event(EventType.ORCHESTRATOR_STARTED, at)


def orchestrator_completed(at: str) -> Event:
    """An episode ended."""
    return _event(EventType.ORCHESTRATOR_COMPLETED, at)


def execution_started(
    at: str,
    *,
    name: str,
    version: str | None,
    input_json: str | None,
    instance_id: str,
    execution_id: str,
    parent_instance_id: str | None,
) -> Event:
    """The orchestration started with `input_json` (JSON text)."""
    parent = parent_instance_id and {"OrchestrationInstance": {"InstanceId": parent_instance_id}}
    return _event(
        EventType.EXECUTION_STARTED,
        at,
        Name=name,
        Version=version,
        Input=input_json,
        OrchestrationInstance={"InstanceId": instance_id, "ExecutionId": execution_id},
        ParentInstance=parent,
        Tags=None,
    )


def execution_completed(at: str, *, status: str, result: str | None) -> Event:
    """The orchestration ended: Completed (result: JSON text) or Failed (result: message)."""
    return _event(EventType.EXECUTION_COMPLETED, at, OrchestrationStatus=status, Result=result)


def execution_terminated(at: str, reason: str) -> Event:
    """The orchestration was terminated."""
    return _event(EventType.EXECUTION_TERMINATED, at, Input=reason)


def execution_suspended(at: str, reason: str) -> Event:
    """The orchestration was suspended."""
    return _event(EventType.EXECUTION_SUSPENDED, at, Reason=reason)


def execution_resumed(at: str, reason: str) -> Event:
    """The orchestration was resumed."""
    return _event(EventType.EXECUTION_RESUMED, at, Reason=reason)


def task_scheduled(at: str, event_id: int, *, name: str, input_json: str | None) -> Event:
    """An activity was scheduled."""
    return _event(EventType.TASK_SCHEDULED, at, event_id, Name=name, Version="", Input=input_json)


def task_completed(at: str, scheduled_id: int, result: str | None) -> Event:
    """An activity returned `result` (JSON text)."""
    return _event(EventType.TASK_COMPLETED, at, TaskScheduledId=scheduled_id, Result=result)


def task_failed(at: str, scheduled_id: int, *, reason: str, details: str) -> Event:
    """An activity raised."""
    return _event(
        EventType.TASK_FAILED, at, TaskScheduledId=scheduled_id, Reason=reason, Details=details
    )


def sub_orchestration_created(
    at: str,
    event_id: int,
    *,
    name: str,
    version: str | None,
    instance_id: str,
    input_json: str | None,
) -> Event:
    """A sub-orchestration was scheduled."""
    return _event(
        EventType.SUB_ORCHESTRATION_INSTANCE_CREATED,
        at,
        event_id,
        Name=name,
        Version=version,
        InstanceId=instance_id,
        Input=input_json,
    )


def sub_orchestration_completed(at: str, scheduled_id: int, result: str | None) -> Event:
    """A sub-orchestration returned `result` (JSON text)."""
    return _event(
        EventType.SUB_ORCHESTRATION_INSTANCE_COMPLETED,
        at,
        TaskScheduledId=scheduled_id,
        Result=result,
    )


def sub_orchestration_failed(at: str, scheduled_id: int, *, reason: str, details: str) -> Event:
    """A sub-orchestration failed, was terminated, or could not be created."""
    return _event(
        EventType.SUB_ORCHESTRATION_INSTANCE_FAILED,
        at,
        TaskScheduledId=scheduled_id,
        Reason=reason,
        Details=details,
    )


def timer_created(at: str, event_id: int, fire_at: str) -> Event:
    """A durable timer was created."""
    return _event(EventType.TIMER_CREATED, at, event_id, FireAt=fire_at)


def timer_fired(at: str, timer_id: int, fire_at: str) -> Event:
    """A durable timer fired."""
    return _event(EventType.TIMER_FIRED, at, TimerId=timer_id, FireAt=fire_at)


def event_sent(at: str, event_id: int, *, target: str, input_json: str) -> Event:
    """An operation was sent to an entity (`target`: "@name@key")."""
    return _event(
        EventType.EVENT_SENT, at, event_id, InstanceId=target, Name="op", Input=input_json
    )


def event_raised(at: str, name: str, input_json: str | None) -> Event:
    """An external event, or an entity's response (then its name is the request's id)."""
    return _event(EventType.EVENT_RAISED, at, Name=name, Input=input_json)


def generic_event(at: str, data: str) -> Event:
    """An event that wakes the orchestrator, which ignores its data."""
    return _event(EventType.GENERIC_EVENT, at, Data=data)


_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode(events: Sequence[Event]) -> str:
    """Encode events as JSON objects joined by commas, without the brackets of an array."""
    return _encode(events)[1:-1]


def decode(text: str) -> list[Event]:
    """Decode one or more outputs of `encode`, joined by commas.

    Raises:
        ValueError: the text is damaged.
    """
    events: list[Event] = json.loads(f"[{text}]")
    for event in events:
        event.pop("IsPlayed", None)  # in stores of earlier versions
    return events


def played(events: Iterable[Event], *, is_played: bool) -> list[Event]:
    """Events with the SDK's `IsPlayed` flag: whether the orchestrator has processed them before."""
    return [{**event, "IsPlayed": is_played} for event in events]
