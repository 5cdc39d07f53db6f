"""Records that engine and store exchange: messages, work, and commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution, Instance
from localazure.sqlite.database import Refused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """Microseconds since the Unix epoch."""
    return (at - _EPOCH) // _MICROSECOND


def moment(at_us: int) -> datetime:
    """Convert microseconds since the Unix epoch to a UTC datetime."""
    return _EPOCH + at_us * _MICROSECOND


Position = tuple[int, str]
"""The sort key of instances, oldest first: creation time (microseconds) and id."""


def position(instance: Instance) -> Position:
    """Return the sort key of an instance."""
    execution = instance.execution
    return microseconds(execution.created_at), execution.instance_id


class InstanceExists(Refused):
    """An instance with this id has not finished."""

    def __init__(self, status: str) -> None:
        # The exact text of DTFx's OrchestrationAlreadyExistsException, which callers match.
        super().__init__(f"An Orchestration instance with the status {status} already exists.")
        self.status = status


class InstanceMissing(Refused):
    """There is no instance with this id."""


class NotFailed(Refused):
    """Only a failed instance can be rewound."""


class InstanceFinished(Refused):
    """The instance has finished and accepts no messages."""


class Conflict(Exception):
    """The store lacks the records that a transaction needs; nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class InstanceQuery:
    """Conditions on instances, all of which must hold.

    Attributes:
        created_from: the earliest creation time.
        created_to: the latest creation time.
        statuses: the allowed statuses; empty: all.
        prefix: the prefix of the id.
        name: the name of the orchestration; empty: all.
        ended_from: the earliest time of the end, for finished instances.
        ended_to: the time before which they ended.
        newest_first: no condition, but the order; otherwise the oldest is first.
    """

    created_from: datetime | None = None
    created_to: datetime | None = None
    statuses: Sequence[str] = ()
    prefix: str = ""
    name: str = ""
    ended_from: datetime | None = None
    ended_to: datetime | None = None
    newest_first: bool = False


@dataclass(frozen=True, kw_only=True)
class Message:
    """An event on its way to an instance or an entity.

    `execution_id` is a fence: an instance that has another execution by now drops the message.
    Messages from timers and activities have no row in the inbox (`sequence` None): until they are
    consumed, the row of the timer or activity is kept. After a crash, the timer fires again and the
    activity runs again.
    """

    target: str
    event: Event
    execution_id: str | None = None
    sequence: int | None = None


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A scheduled activity.

    `context_json` is a JSON object with `Version`, `Tags` and `ParentTraceContext` of its event,
    those that have a value; None if none has.
    """

    instance_id: str
    execution_id: str
    event_id: int
    name: str
    input_json: str | None
    not_before_us: int = 0
    context_json: str | None = None

    @classmethod
    def of(cls, execution: Execution, step: Event) -> Activity:
        """Create the activity of a TaskScheduled event."""
        return cls(
            instance_id=execution.instance_id,
            execution_id=execution.execution_id,
            event_id=step["EventId"],
            name=step["Name"],
            input_json=step["Input"],
            context_json=history.context_of(step, "Version", "Tags", "ParentTraceContext"),
        )


@dataclass(frozen=True, kw_only=True)
class Timer:
    """A timer that has not fired, or whose message was not consumed."""

    instance_id: str
    execution_id: str
    event_id: int
    fire_at: str

    @classmethod
    def of(cls, execution: Execution, step: Event) -> Timer:
        """Create the timer of a TimerCreated event."""
        return cls(
            instance_id=execution.instance_id,
            execution_id=execution.execution_id,
            event_id=step["EventId"],
            fire_at=step["FireAt"],
        )


@dataclass(frozen=True, kw_only=True)
class Child:
    """A sub-orchestration to start, and the message to the parent if its id is in use."""

    execution: Execution
    refusal: Message


@dataclass(frozen=True, kw_only=True)
class EpisodeCommit:
    """All changes of one episode.

    Attributes:
        execution: the execution that the episode ran.
        at: the time of the commit.
        episode: the number of the history row; None: no history is kept (continue-as-new).
        events: the text of the history row.
        consumed: the messages that the episode consumed.
        instance: the new row of the instance; None if only the history changed.
        ended: the execution is over: its timers, activities and messages are deleted.
        leaves_activities: its activities are not; each is deleted when it has run.
        next_execution: the execution that follows (continue-as-new).
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
    leaves_activities: bool = False
    next_execution: Execution | None = None


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """The rewritten history of a failed instance, with the open steps and messages to resume it."""

    instance_id: str
    events: str
    activities: Sequence[Activity] = ()
    timers: Sequence[Timer] = ()
    messages: Sequence[Message] = ()


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """Instances and messages that a commit created."""

    started: list[str] = field(default_factory=list[str])
    messages: list[Message] = field(default_factory=list[Message])


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A row of an entity.

    Attributes:
        state_json: JSON text; None: the entity does not exist.
        locked_by: the instance id of the orchestration that has the entity's lock.
    """

    entity_id: str
    state_json: str | None
    updated_at: datetime
    locked_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class EntityCommit:
    """All changes of one batch of operations. Without state and lock, the row is deleted."""

    entity: Entity
    consumed: Sequence[Message]
    messages: Sequence[Message]
    started: Sequence[Execution] = ()
