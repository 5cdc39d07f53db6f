"""Commands: the work that an episode requests from the host."""

from __future__ import annotations

from dataclasses import dataclass

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event, EventType


@dataclass(frozen=True, kw_only=True)
class ScheduleActivity:
    """Run an activity. `input_json` is its trigger."""

    event_id: int
    name: str
    input_json: str | None
    retry_of: int | None = None


@dataclass(frozen=True, kw_only=True)
class CreateTimer:
    """Fire at `fire_at` (ISO 8601, UTC)."""

    event_id: int
    fire_at: str
    retry_of: int | None = None


@dataclass(frozen=True, kw_only=True)
class StartChild:
    """Start a sub-orchestration. `input_json` is stored as the child's input."""

    event_id: int
    name: str
    version: str | None
    instance_id: str
    input_json: str | None
    retry_of: int | None = None


@dataclass(frozen=True, kw_only=True)
class SendOperation:
    """Send a request (JSON) to the entity `target` ("@name@key")."""

    event_id: int
    target: str
    request_json: str
    retry_of: None = None


Command = ScheduleActivity | CreateTimer | StartChild | SendOperation


def recorded(command: Command, at: str) -> Event:
    """The history event that records a command."""
    match command:
        case ScheduleActivity():
            event = history.task_scheduled(
                at, command.event_id, name=command.name, input_json=command.input_json
            )
        case CreateTimer():
            event = history.timer_created(at, command.event_id, command.fire_at)
        case StartChild():
            event = history.sub_orchestration_created(
                at,
                command.event_id,
                name=command.name,
                version=command.version,
                instance_id=command.instance_id,
                input_json=command.input_json,
            )
        case SendOperation():
            event = history.event_sent(
                at, command.event_id, target=command.target, input_json=command.request_json
            )
    if command.retry_of is not None:
        event["RetryOf"] = command.retry_of
    return event


def describe(command: Command) -> str:
    """The step in words, for the message of a determinism failure."""
    match command:
        case ScheduleActivity():
            return f"activity '{command.name}'"
        case CreateTimer():
            return "a timer"
        case StartChild():
            return f"sub-orchestration '{command.name}'"
        case SendOperation():
            return f"an operation of entity '{command.target}'"


def describe_recorded(event: Event) -> str:
    """The step that a history event records, in the same words as `describe`."""
    match event["EventType"]:
        case EventType.TASK_SCHEDULED:
            return f"activity '{event['Name']}'"
        case EventType.TIMER_CREATED:
            return "a timer"
        case EventType.SUB_ORCHESTRATION_INSTANCE_CREATED:
            return f"sub-orchestration '{event['Name']}'"
        case _:
            return f"an operation of entity '{event['InstanceId']}'"
