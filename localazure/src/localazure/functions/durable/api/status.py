"""An instance as the management API shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Instance


def view(
    instance: Instance,
    *,
    show_input: bool,
    events: Sequence[Event] | None = None,
    show_output: bool,
) -> dict[str, Any]:
    """The status payload of the real extension (HttpApiHandler.ConvertFrom).

    Args:
        instance: what to show.
        show_input: whether to show the input; null otherwise.
        events: history to show, None: none.
        show_output: whether results appear in the history.
    """
    execution = instance.execution
    shown: dict[str, Any] = {
        "name": execution.name,
        "instanceId": execution.instance_id,
        "runtimeStatus": str(instance.status),
        "input": _value(execution.input_json) if show_input else None,
        "customStatus": _value(instance.custom_status),
        "output": _value(instance.output),
        "createdTime": seconds(execution.created_at),
        "lastUpdatedTime": seconds(instance.last_updated_at),
    }
    if events is not None:
        shown["historyEvents"] = compact(events, show_output=show_output)
    return shown


def seconds(moment: datetime) -> str:
    """ISO 8601 to the second, as the real extension."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compact(events: Sequence[Event], *, show_output: bool) -> list[dict[str, Any]]:
    """History in the short form of the API: an end carries what it is the end of.

    Scheduling events are folded into the events that end them, episode marks are left out; names
    stand for event types.
    """
    scheduled = {
        event["EventId"]: event
        for event in events
        if event["EventType"]
        in (EventType.TASK_SCHEDULED, EventType.SUB_ORCHESTRATION_INSTANCE_CREATED)
    }
    ended = {event["TaskScheduledId"] for event in events if "TaskScheduledId" in event}
    shown: list[dict[str, Any]] = []
    for event in events:
        kind = EventType(event["EventType"])
        if kind in _LEFT_OUT or (event["EventId"] in ended and event["EventId"] in scheduled):
            continue
        shown.append(_compact_one(event, kind, scheduled, show_output=show_output))
    return shown


_LEFT_OUT = frozenset(
    {EventType.ORCHESTRATOR_STARTED, EventType.ORCHESTRATOR_COMPLETED, EventType.TIMER_CREATED}
)


def _compact_one(
    event: Event, kind: EventType, scheduled: dict[int, Event], *, show_output: bool
) -> dict[str, Any]:
    line: dict[str, Any] = {
        "EventType": "".join(word.capitalize() for word in kind.name.split("_")),
        "Timestamp": event["Timestamp"],
    }
    task = scheduled.get(event.get("TaskScheduledId", -1), event)
    if task is not event:
        line["ScheduledTime"] = task["Timestamp"]
    if kind != EventType.EVENT_RAISED and task.get("Name"):
        line["FunctionName"] = task["Name"]
    if task.get("InstanceId"):
        line["InstanceId"] = task["InstanceId"]
    for key in ("OrchestrationStatus", "FireAt", "Reason", "Details", "Data"):
        if key in event:
            line[key] = event[key]
    if kind == EventType.EVENT_RAISED:
        line["Name"] = event["Name"]
    if show_output:
        for key in ("Result", "Input"):
            if key in event:
                line[key] = _value(event[key])
    return line


def _value(text: str | None) -> object:
    """JSON text as a value; what is not JSON (the message of a failure) as itself."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
