"""The entity events of azure-functions-durable 2, as the real extension records them.

It turns each message to an entity into EventSent, and each answer into EventRaised, named for the
request: https://github.com/Azure/azure-functions-durable-extension (RequestMessage,
ResponseMessage).
"""

from __future__ import annotations

import json
from typing import Any

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event, EventType


def as_recorded_on_azure(event: Event) -> Event:
    """Return an entity event in the extension's form, and any other event as it is."""
    match event["EventType"]:
        case EventType.ENTITY_OPERATION_CALLED | EventType.ENTITY_OPERATION_SIGNALED as kind:
            request = {"op": event["Operation"], "id": event["RequestId"], "input": event["Input"]}
            is_signal = kind == EventType.ENTITY_OPERATION_SIGNALED
            shown = _sent(event, event["TargetInstanceId"], {**request, "signal": is_signal})
        case EventType.ENTITY_LOCK_REQUESTED:
            position = event.get("Position") or 0
            request = {"id": event["CriticalSectionId"], "pos": position}
            shown = _sent(event, event["LockSet"][position], request)
        case EventType.ENTITY_UNLOCK_SENT:
            request = {"id": event["CriticalSectionId"]}
            shown = _sent(event, event["TargetInstanceId"], request)
        case EventType.ENTITY_OPERATION_COMPLETED:
            shown = _raised(event, event["RequestId"], {"result": event["Output"]})
        case EventType.ENTITY_OPERATION_FAILED:
            failure = event["FailureDetails"]
            message = json.dumps(failure.get("errorMessage", ""))
            response = {"result": message, "exceptionType": failure.get("errorType", "")}
            shown = _raised(event, event["RequestId"], response)
        case EventType.ENTITY_LOCK_GRANTED:
            shown = _raised(event, event["CriticalSectionId"], {"result": None})
        case _:
            shown = event
    return shown


def _sent(event: Event, target: str, request: dict[str, Any]) -> Event:
    sent = json.dumps(request)
    return history.event_sent(event["Timestamp"], event["EventId"], target=target, input_json=sent)


def _raised(event: Event, name: str, response: dict[str, Any]) -> Event:
    return history.event_raised(event["Timestamp"], name, json.dumps(response))
