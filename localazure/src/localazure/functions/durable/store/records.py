"""Records between the engine and the store: messages, work, and turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution, Instance
from localazure.sqlite.database import Refused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Microseconds since the Unix epoch."""
    return (at - _EPOCH) // _MICROSECOND


def moment(at_us: int) -> datetime:
    """The moment of so many microseconds since the Unix epoch."""
    return _EPOCH + at_us * _MICROSECOND


Position = tuple[int, str]
"""The position of an instance among all, oldest first: creation time (microseconds) and id."""


def position(instance: Instance) -> Position:
    """Where an instance stands among all."""
    execution = instance.execution
    return microseconds(execution.created_at), execution.instance_id


class InstanceExists(Refused):
    """An instance of that id has not finished."""

    def __init__(self, status: str) -> None:
        # DTFx's OrchestrationAlreadyExistsException, word for word: callers look for it.
        super().__init__(f"An Orchestration instance with the status {status} already exists.")
        self.status = status


class InstanceMissing(Refused):
    """There is no instance of that id."""


class NotFailed(Refused):
    """Only a failed instance can be rewound."""


class InstanceFinished(Refused):
    """The instance has finished, so nothing can be sent to it."""


class Conflict(Exception):
    """The store lacks the records that a transaction needs; nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class InstanceQuery:
    """Conditions that instances meet all of.

    Attributes:
        created_from: created at or after it.
        created_to: created at or before it.
        statuses: in one of these states; none given: in any.
        prefix: the id begins with it.
    """

    created_from: datetime | None = None
    created_to: datetime | None = None
    statuses: Sequence[str] = ()
    prefix: str = ""


UNNUMBERED = 0
"""The sequence number of a message that gets one from the transaction that writes it."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """An event on its way to an instance or an entity.

    `execution_id` fences it: an instance that has gone on to another execution drops it. What a
    timer or an activity has to say needs no row in the inbox (`sequence` None): until it is
    consumed, the row of the timer or of the activity stands for it. After a crash the timer fires
    again, and the activity runs again.
    """

    target: str
    event: Event
    execution_id: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A scheduled activity."""

    instance_id: str
    execution_id: str
    event_id: int
    name: str
    input_json: str | None
    not_before_us: int = 0

    @classmethod
    def of(cls, execution: Execution, step: Event) -> Activity:
        """The activity that a TaskScheduled event schedules."""
        return cls(
            instance_id=execution.instance_id,
            execution_id=execution.execution_id,
            event_id=step["EventId"],
            name=step["Name"],
            input_json=step["Input"],
        )


@dataclass(frozen=True, kw_only=True)
class Timer:
    """A created timer."""

    instance_id: str
    execution_id: str
    event_id: int
    fire_at: str

    @classmethod
    def of(cls, execution: Execution, step: Event) -> Timer:
        """The timer that a TimerCreated event creates."""
        return cls(
            instance_id=execution.instance_id,
            execution_id=execution.execution_id,
            event_id=step["EventId"],
            fire_at=step["FireAt"],
        )


@dataclass(frozen=True, kw_only=True)
class Child:
    """A sub-orchestration to start, and what to tell the parent when its id is taken."""

    execution: Execution
    refusal: Message


@dataclass(frozen=True, kw_only=True)
class EpisodeCommit:
    """Everything that one episode changes.

    Attributes:
        execution: what was run.
        at: when.
        episode: number of the history row, None: no history is kept (continue-as-new).
        events: the row's text.
        consumed: messages that the episode took.
        instance: the instance's row from now on, None where only history grew.
        ended: the execution is over: its timers, activities and messages go.
        next_execution: the execution that goes on from here (continue-as-new).
    """

    execution: Execution
    at: datetime
    episode: int | None
    events: str
    consumed: Sequence[Message] = ()
    activities: Sequence[Activity] = ()
    timers: Sequence[Timer] = ()
    children: Sequence[Child] = ()
    messages: Sequence[Message] = ()
    instance: Instance | None = None
    ended: bool = False
    next_execution: Execution | None = None


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A failed instance as it goes on: with another history, and what is under way by it."""

    instance_id: str
    events: str
    activities: Sequence[Activity] = ()
    timers: Sequence[Timer] = ()
    messages: Sequence[Message] = ()


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The effects of a committed turn."""

    started: list[str] = field(default_factory=list[str])
    messages: list[Message] = field(default_factory=list[Message])


@dataclass(frozen=True, kw_only=True)
class EntityCommit:
    """Everything that one batch of operations changes. `state_json` None deletes the entity."""

    entity_id: str
    at: datetime
    state_json: str | None
    consumed: Sequence[Message]
    messages: Sequence[Message]
