"""The status payload of an instance in the management API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from localazure.functions.durable.api.entity_events import as_recorded_on_azure
from localazure.functions.durable.engine.history import Event, EventType
from localazure.functions.durable.engine.instance import Instance, Status


def view(
    instance: Instance,
    *,
    show_input: bool,
    events: Sequence[Event] | None = None,
    show_output: bool,
) -> dict[str, Any]:
    """The status payload of the real extension (HttpApiHandler.ConvertFrom).

    Args:
        instance: the instance to show.
        show_input: whether to include the input (else null) and the inputs in the history.
        events: the history to include; None: no history.
        show_output: whether the history includes results.
    """
    execution = instance.execution
    shown: dict[str, Any] = {
        "name": execution.name,
        "instanceId": execution.instance_id,
        "runtimeStatus": str(instance.status),
        "input": _value(execution.input_json) if show_input else None,
        "customStatus": _value(instance.custom_status),
        "output": _output(instance),
        "createdTime": seconds(execution.created_at),
        "lastUpdatedTime": seconds(instance.last_updated_at),
    }
    if events is not None:
        shown["historyEvents"] = compact(events, show_input=show_input, show_output=show_output)
    return shown


def _output(instance: Instance) -> object:
    """The output. A failure with details, as of azure-functions-durable 2, is one text here."""
    output: Any = _value(instance.output)
    if instance.status is Status.FAILED and isinstance(output, dict):
        return f"{output.get('errorType', '')}: {output.get('errorMessage', '')}"
    return output


def seconds(moment: datetime) -> str:
    """ISO 8601 with seconds, as in the real extension."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def compact(
    events: Sequence[Event], *, show_input: bool, show_output: bool
) -> list[dict[str, Any]]:
    """The history in the API's short form: an event that ends a step includes the step's data.

    As in the extension's DurableClient.GetDurableOrchestrationStatusAsync: events that schedule an
    activity or a sub-orchestration are merged into the events that end them; the marks of episodes
    and event ids are omitted; event types are names. Inputs are JSON texts, results are values.
    """
    shown: dict[int, dict[str, Any]] = {}
    scheduled: dict[int, tuple[int, Event]] = {}
    for place, event in enumerate(map(as_recorded_on_azure, events)):
        kind = EventType(event["EventType"])
        if kind in _LEFT_OUT:
            continue
        if (
            kind in _SCHEDULED
        ):  # of version 2 of the Durable SDK, all attempts of a call have one id
            scheduled[event["EventId"]] = place, event
        begun, task = scheduled.get(event.get("TaskScheduledId", -1), (place, None))
        shown.pop(begun, None)
        line = _compact_one(event, kind, task)
        if not show_input:
            line.pop("Input", None)
        if not show_output:
            line.pop("Result", None)
        shown[place] = line
    return list(shown.values())


_SCHEDULED = (EventType.TASK_SCHEDULED, EventType.SUB_ORCHESTRATION_INSTANCE_CREATED)
_LEFT_OUT = frozenset({EventType.ORCHESTRATOR_STARTED, EventType.ORCHESTRATOR_COMPLETED})
_SHOWN = (
    "InstanceId",
    "OrchestrationStatus",
    "FireAt",
    "Reason",
    "Details",
    "FailureDetails",
    "Data",
    "Input",
)


def _compact_one(event: Event, kind: EventType, task: Event | None) -> dict[str, Any]:
    """The short form of an event. `task` is the event that scheduled the step that it ends."""
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
    """Parse JSON text. Text that is not JSON (the message of a failure) is returned unchanged."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
