"""The status payload of an instance in the management API."""

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
        show_input: whether to show the input, null otherwise, and inputs in the history.
        events: history to show, None for none.
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
        shown["historyEvents"] = compact(events, show_input=show_input, show_output=show_output)
    return shown


def seconds(moment: datetime) -> str:
    """ISO 8601 to the second, as the real extension."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compact(
    events: Sequence[Event], *, show_input: bool, show_output: bool
) -> list[dict[str, Any]]:
    """History in the short form of the API: an end carries what it is the end of.

    As DurableClient.GetDurableOrchestrationStatusAsync of the extension: events that schedule an
    activity or a sub-orchestration are folded into the events that end them, episode marks are left
    out, ids too; names stand for event types. An input is the stored JSON text, a result its value.
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
        line = _compact_one(event, kind, scheduled.get(event.get("TaskScheduledId", -1)))
        if not show_input:
            line.pop("Input", None)
        if not show_output:
            line.pop("Result", None)
        shown.append(line)
    return shown


_LEFT_OUT = frozenset({EventType.ORCHESTRATOR_STARTED, EventType.ORCHESTRATOR_COMPLETED})
_SHOWN = ("InstanceId", "OrchestrationStatus", "FireAt", "Reason", "Details", "Data", "Input")


def _compact_one(event: Event, kind: EventType, task: Event | None) -> dict[str, Any]:
    """An event; `task` is the one that scheduled what it ends."""
    line: dict[str, Any] = {
        "EventType": "".join(word.capitalize() for word in kind.name.split("_")),
        "Timestamp": event["Timestamp"],
        **{key: event[key] for key in _SHOWN if key in event},
    }
    if "Name" in event:
        line["FunctionName" if kind == EventType.EXECUTION_STARTED else "Name"] = event["Name"]
    if "Result" in event:
        line["Result"] = _value(event["Result"])
    if task is not None:
        line["ScheduledTime"] = task["Timestamp"]
        line["FunctionName"] = task["Name"]
        line["Input"] = task["Input"]
    return line


def _value(text: str | None) -> object:
    """JSON text as a value; a text that is not JSON (the message of a failure) unchanged."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
