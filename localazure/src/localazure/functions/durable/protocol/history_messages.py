"""Events of histories: in the engine's form, and as HistoryEvent messages of the protocol.

The fields are the same. The engine's keys are in PascalCase, as in the Durable Task Framework.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb
from google.protobuf.json_format import MessageToDict, ParseDict, SerializeToJsonError
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.wrappers_pb2 import StringValue

from localazure.functions.durable.engine.history import NO_EVENT_ID, Event, EventType
from localazure.functions.durable.engine.instance import Status

# gRPC takes messages of 4 MB, and an event may have a payload of 1 MB.
_CHUNK_BYTES: Final = 1024 * 1024


def _camel_case(name: str) -> str:
    first, *others = name.lower().split("_")
    return first + "".join(word.capitalize() for word in others)


_FIELDS: Final = {
    **{kind: _camel_case(kind.name) for kind in EventType},
    EventType.GENERIC_EVENT: "executionRewound",  # the engine has no other use for it
}
_KINDS: Final = {field: kind for kind, field in _FIELDS.items()}


def to_message(event: Event) -> pb.HistoryEvent:
    """Convert an event of the engine."""
    kind = EventType(event["EventType"])
    return ParseDict(
        {
            "eventId": event["EventId"],
            "timestamp": event["Timestamp"],
            _FIELDS[kind]: _lower_case(event) | _translated(kind, event),
        },
        pb.HistoryEvent(),
        ignore_unknown_fields=True,
    )


def to_event(message: pb.HistoryEvent) -> Event:
    """Convert a message of a worker."""
    field = message.WhichOneof("eventType")
    at = message.timestamp.ToJsonString()
    return from_fields(_KINDS[field or ""], at, getattr(message, field or ""), message.eventId)


def from_fields(
    kind: EventType, at: str, fields: Message, event_id: int = NO_EVENT_ID, /, **others: Any
) -> Event:
    """Create an event with the fields of a message, None where they have no value."""
    return {
        "EventType": int(kind),
        "EventId": event_id,
        "Timestamp": at,
        **{_upper(field.json_name): None for field in fields.DESCRIPTOR.fields},
        **{_upper(key): value for key, value in MessageToDict(fields).items()},
        **others,
    }


def _translated(kind: EventType, event: Event) -> dict[str, Any]:
    """The fields that have another form in the engine."""
    match kind:
        case EventType.EXECUTION_STARTED:
            parent = event["ParentInstance"]
            return {
                "orchestrationInstance": _lower_case(event["OrchestrationInstance"]),
                "parentInstance": parent
                and {
                    **_lower_case(parent),
                    "orchestrationInstance": _lower_case(parent["OrchestrationInstance"]),
                },
            }
        case EventType.EXECUTION_COMPLETED:
            failure = event.get("FailureDetails")
            return {
                "orchestrationStatus": status_name(event["OrchestrationStatus"]),
                "result": None if failure else event["Result"],
            }
        case EventType.EXECUTION_SUSPENDED | EventType.EXECUTION_RESUMED:
            return {"input": event["Reason"]}
        case EventType.TASK_FAILED | EventType.SUB_ORCHESTRATION_INSTANCE_FAILED:
            return {"failureDetails": event.get("FailureDetails") or failure_of(event["Reason"])}
        case EventType.GENERIC_EVENT:
            return {"reason": event["Data"].removeprefix("Rewind: ")}
        case _:
            return {}


def in_chunks(messages: Iterable[pb.HistoryEvent]) -> Iterator[pb.HistoryChunk]:
    """Divide a history into messages of a size that gRPC takes."""
    chunk, size_bytes = pb.HistoryChunk(), 0
    for message in messages:
        chunk.events.append(message)
        size_bytes += message.ByteSize()
        if size_bytes > _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = pb.HistoryChunk(), 0
    yield chunk


def failure(details: pb.TaskFailureDetails) -> dict[str, Any]:
    """Convert the failure details of a worker to JSON, which has no numbers such as NaN."""
    try:
        return MessageToDict(details)
    except SerializeToJsonError:
        return {
            "errorType": details.errorType,
            "errorMessage": details.errorMessage,
            "stackTrace": details.stackTrace.value,
        }


def failure_of(message: str) -> dict[str, Any]:
    """The failure details, as JSON, of a failure that the scheduler itself has found."""
    return {"errorType": "DurableTaskScheduler", "errorMessage": message}


def status_name(status: str) -> Any:
    """Convert a runtime status of the engine to its name in the protocol, which fields take."""
    return f"ORCHESTRATION_STATUS_{status.upper()}"


def status_of(number: int) -> Status | None:
    """Convert a runtime status of the protocol; None: no instance is in it here."""
    name = pb.OrchestrationStatus.Name(number).removeprefix("ORCHESTRATION_STATUS_").capitalize()
    return Status(name) if name in list(Status) else None


def text(given: str | None) -> StringValue | None:
    """Convert a text."""
    return None if given is None else StringValue(value=given)


def value(message: Message, field: str) -> str | None:
    """The text in a field; None where it has none."""
    return getattr(message, field).value if message.HasField(field) else None


def timestamp(moment: datetime) -> Timestamp:
    """Convert a time."""
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def _lower_case(fields: dict[str, Any]) -> dict[str, Any]:
    return {key[0].lower() + key[1:]: value for key, value in fields.items()}


def _upper(key: str) -> str:
    return key[0].upper() + key[1:]
