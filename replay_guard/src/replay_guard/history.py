"""A history as replay needs it: the arrivals, in order, and the steps that the orchestrator took.

There are two forms of histories: `exported_form` reads that of the public HTTP API, `worker_form`
that of the Functions worker's input. Not all of it is recorded in both:

| | worker form | exported form |
|---|---|---|
| ids of steps | yes | no: steps are matched by time, then by kind and name |
| the orchestrator's clock | yes | no: bounded by the previous arrival and the next step |
| version of the instance, parent's id | yes | no |
| inputs of activities and children | yes, if the backend keeps them | the same |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from typing import Any, Final

from replay_guard.payload import NOT_RECORDED, Payload

Document = dict[str, Any]

# Fields of the context: azure.durable_functions.DurableOrchestrationContext
PARENT: Final = "parent_instance_id"
VERSION: Final = "version"
HTTP_ACTIVITY: Final = "BuiltIn::HttpActivity"  # azure.durable_functions.constants

# In an answer of azure-functions-durable 2 alone: why the orchestrator's past is another one.
NOT_REPEATED: Final = "notRepeated"


class CannotCheck(Exception):
    """A history cannot be replayed; the message says which, why and what to do."""


class NotTold(CannotCheck):
    """The history is in order, but does not tell what the orchestrator's way depends on."""


class EventType(IntEnum):
    """Events of a history, with the numbers of the worker form."""

    EXECUTION_STARTED = 0
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


class StepKind(StrEnum):
    """Actions of an orchestrator."""

    ACTIVITY = "activity"
    TIMER = "timer"
    CHILD = "sub-orchestration"
    OPERATION = "entity operation"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that a history records.

    Attributes:
        kind: its kind.
        name: function, or entity and operation; empty for a timer.
        at: when it was scheduled (UTC).
        event: its history event in the worker form, without EventId.
        event_id: its sequence number; None if the form does not record it.
        input: its input.
        fire_at: when a timer is due (UTC).
        version: a child's version; None if the form does not record it.
        instance_id: a child's id; None if the form does not record it.
    """

    kind: StepKind
    name: str
    at: datetime
    event: Document
    event_id: int | None = None
    input: Payload = NOT_RECORDED
    fire_at: datetime | None = None
    version: str | None = None
    instance_id: str | None = None

    def __str__(self) -> str:
        return describe(self.kind, self.name)


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """An event that woke the orchestrator up: its start, the end of a step, an external event.

    Attributes:
        event: the history event in the worker form, without the id of the step that it ends.
        at: when the event was created (UTC): the orchestrator's clock is not earlier.
        ends: index in `History.steps` of the step that it ends, None if it ends no step.
        failed: whether that step failed.
        clock: the orchestrator's clock (UTC); None if the form does not record it.
        steps_after: how many steps are recorded at the end of this arrival's episode; None if
            the form does not show it, or the episode has further arrivals.
        custom_status: the custom status after this arrival.
    """

    event: Document
    at: datetime
    ends: int | None = None
    failed: bool = False
    clock: datetime | None = None
    steps_after: int | None = None
    custom_status: Payload = NOT_RECORDED


@dataclass(frozen=True, kw_only=True)
class History:
    """One execution of an instance.

    Attributes:
        instance_id: the instance.
        orchestrator: registered name.
        input: the orchestrator's input, the JSON value that the worker gets.
        arrivals: in the order of the history; the first one is ExecutionStarted.
        steps: in the order in which they were scheduled.
        status: `runtimeStatus` of the HTTP API; None if the last episode has no recorded end.
        output: recorded result of an instance that completed.
        version: None if it has none, or it is not recorded.
        parent_instance_id: the same.
        not_recorded: fields of the orchestrator's context that the form does not record.
        times: moments in its payloads; the orchestrator's clock may be among them.
        options: further keys of the orchestrator-in document, such as the limits of timers.
        answer: the orchestrator's recorded answer to the last arrival, if it was kept.
    """

    instance_id: str
    orchestrator: str
    input: Any
    arrivals: Sequence[Arrival]
    steps: Sequence[Step]
    status: str | None = None
    output: Payload = NOT_RECORDED
    version: str | None = None
    parent_instance_id: str | None = None
    not_recorded: frozenset[str] = frozenset()
    times: Sequence[datetime] = ()
    options: Document = field(default_factory=dict[str, Any])
    answer: Document | None = None

    @property
    def is_in_worker_form(self) -> bool:
        """Whether it is in the worker form, which version 1 of the SDK has recorded."""
        return self.arrivals[0].clock is not None


def describe(kind: StepKind, name: str) -> str:
    """A step in words."""
    return f"{kind} '{name}'" if name else f"a {kind}"


def parse_time(text: str) -> datetime:
    """Parse ISO 8601 text as UTC. .NET writes seven decimals of a second; the last is dropped."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError) as error:
        raise CannotCheck(f"{text!r} is not an ISO 8601 time; export the history again") from error


def time_text(moment: datetime) -> str:
    """A UTC moment as ISO 8601 with microseconds and Z."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def event(kind: EventType, at: datetime, **fields: Any) -> Document:
    """A history event in the worker form."""
    return {"EventType": int(kind), "EventId": -1, "Timestamp": time_text(at), **fields}
