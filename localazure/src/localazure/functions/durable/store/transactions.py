"""The store's transactions: functions that run on the thread that owns the connection."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from datetime import datetime

from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.engine.instance import FINISHED, LIVE, Execution, Status
from localazure.functions.durable.store.records import (
    Activity,
    Conflict,
    Delivery,
    Entity,
    EntityCommit,
    EpisodeCommit,
    InstanceExists,
    InstanceFinished,
    InstanceMissing,
    Message,
    NotFailed,
    Rewrite,
    Timer,
    microseconds,
)

_LIVE = tuple(str(status) for status in LIVE)
_FINISHED = tuple(str(status) for status in FINISHED)


def create(connection: sqlite3.Connection, execution: Execution) -> None:
    """Insert a pending instance. It replaces a finished one with the same id.

    Raises:
        InstanceExists: an instance with this id has not finished.
    """
    status = _create(connection, execution)
    if status is not None:
        raise InstanceExists(status)


def post(connection: sqlite3.Connection, message: Message) -> None:
    """Put a message into the inbox of a live instance, or of an entity.

    Raises:
        InstanceMissing: there is no such instance.
        InstanceFinished: the instance has finished.
    """
    if not _post(connection, message):
        exists = connection.execute(
            "SELECT 1 FROM instances WHERE instance_id = ?", (message.target,)
        ).fetchone()
        raise InstanceFinished(message.target) if exists else InstanceMissing(message.target)


def complete_activity(connection: sqlite3.Connection, event_id: int, message: Message) -> bool:
    """Record an activity's result, once. Returns False if the orchestration does not await it."""
    removed = connection.execute(
        "DELETE FROM activities WHERE execution_id = ? AND event_id = ?",
        (message.execution_id, event_id),
    )
    return removed.rowcount == 1 and _post(connection, message)


def postpone_activity(connection: sqlite3.Connection, activity: Activity) -> bool:
    """Postpone an activity, with another input. Returns False if it was deleted meanwhile."""
    changed = connection.execute(
        "UPDATE activities SET input_json = :input_json, not_before_us = :not_before_us"
        " WHERE execution_id = :execution_id AND event_id = :event_id",
        vars(activity),
    )
    return changed.rowcount == 1


def commit_entity(connection: sqlite3.Connection, turn: EntityCommit) -> Delivery:
    """Commit a batch of operations. An orchestration whose id is in use is not started.

    Raises:
        Conflict: a consumed message is not in the store.
    """
    _consume(connection, turn.consumed)
    put_entity(connection, turn.entity)
    return Delivery(
        started=[one.instance_id for one in turn.started if _create(connection, one) is None],
        messages=[message for message in turn.messages if _post(connection, message)],
    )


def put_entity(connection: sqlite3.Connection, entity: Entity) -> None:
    """Write an entity's row, or delete it."""
    if entity.state_json is None and entity.locked_by is None:
        connection.execute("DELETE FROM entities WHERE entity_id = ?", (entity.entity_id,))
    else:
        connection.execute(
            "INSERT OR REPLACE INTO entities VALUES (?, ?, ?, ?)",
            (
                entity.entity_id,
                entity.state_json,
                microseconds(entity.updated_at),
                entity.locked_by,
            ),
        )


def rewrite(connection: sqlite3.Connection, rewrites: Sequence[Rewrite], at: datetime) -> None:
    """Set failed instances to Running, with rewritten histories.

    Raises:
        NotFailed: one of them does not have the status Failed; no instance is changed.
    """
    for one in rewrites:
        row = connection.execute(
            "UPDATE instances SET status = ?, output = NULL, updated_at_us = ?"
            " WHERE instance_id = ? AND status = ? RETURNING execution_id",
            (Status.RUNNING, microseconds(at), one.instance_id, Status.FAILED),
        ).fetchone()
        if row is None:
            raise NotFailed(one.instance_id)
        (execution_id,) = row
        connection.execute("DELETE FROM history WHERE execution_id = ?", (execution_id,))
        connection.execute(
            "INSERT INTO history VALUES (?, 0, ?, ?)", (execution_id, microseconds(at), one.events)
        )
        _schedule(connection, one.activities, one.timers)
        for message in one.messages:
            _post(connection, message)


def purge(connection: sqlite3.Connection, instance_ids: Sequence[str]) -> int:
    """Delete finished instances with their histories; return their number."""
    count = 0
    for instance_id in instance_ids:
        row = connection.execute(
            "DELETE FROM instances WHERE instance_id = ?"  # noqa: S608 - placeholders only
            f" AND status IN ({marks(_FINISHED)}) RETURNING execution_id",
            (instance_id, *_FINISHED),
        ).fetchone()
        if row is not None:
            count += 1
            connection.execute("DELETE FROM history WHERE execution_id = ?", tuple(row))
    return count


def commit(connection: sqlite3.Connection, turn: EpisodeCommit) -> Delivery:
    """Commit an episode.

    Raises:
        Conflict: a consumed message is not in the store.
    """
    execution = turn.execution
    _consume(connection, turn.consumed)
    if turn.episode is not None:
        connection.execute(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            (execution.execution_id, turn.episode, microseconds(turn.at), turn.events),
        )
    _schedule(connection, turn.activities, turn.timers)
    if turn.ended:
        _forget(connection, turn)
    if turn.next_execution is not None:
        _renew(connection, execution, turn.next_execution, turn.at)
    if turn.instance is not None:
        connection.execute(
            "UPDATE instances SET status = ?, started = ?, custom_status = ?, output = ?,"
            " updated_at_us = ? WHERE instance_id = ?",
            (
                turn.instance.status,
                turn.instance.started,
                turn.instance.custom_status,
                turn.instance.output,
                microseconds(turn.at),
                execution.instance_id,
            ),
        )
    delivery = Delivery()
    for child in turn.children:
        if _create(connection, child.execution) is None:
            delivery.started.append(child.execution.instance_id)
        elif _post(connection, child.refusal):
            delivery.messages.append(child.refusal)
    for message in turn.messages:
        if _post(connection, message):
            delivery.messages.append(message)
    return delivery


def marks(values: Sequence[object]) -> str:
    """Return an SQL placeholder for each value, separated by commas."""
    return ", ".join("?" * len(values))


def _schedule(
    connection: sqlite3.Connection, activities: Sequence[Activity], timers: Sequence[Timer]
) -> None:
    connection.executemany(
        "INSERT INTO activities VALUES"
        " (:execution_id, :event_id, :instance_id, :name, :input_json, :not_before_us,"
        " :context_json)",
        map(vars, activities),
    )
    connection.executemany(
        "INSERT INTO timers VALUES (:execution_id, :event_id, :instance_id, :fire_at)",
        map(vars, timers),
    )


def _create(connection: sqlite3.Connection, execution: Execution) -> str | None:
    """Insert a pending instance, or return the status of a live one with the same id."""
    existing = connection.execute(
        "SELECT status, execution_id FROM instances WHERE instance_id = ?",
        (execution.instance_id,),
    ).fetchone()
    if existing is not None:
        status, execution_id = existing
        if status in LIVE:
            return status
        connection.execute("DELETE FROM history WHERE execution_id = ?", (execution_id,))
    parent = execution.parent
    created_at_us = microseconds(execution.created_at)
    connection.execute(
        "INSERT OR REPLACE INTO instances (instance_id, execution_id, name, version, input_json,"
        " parent_instance_id, parent_execution_id, parent_event_id, status, created_at_us,"
        " updated_at_us, opening_json) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            execution.instance_id,
            execution.execution_id,
            execution.name,
            execution.version,
            execution.input_json,
            parent and parent.instance_id,
            parent and parent.execution_id,
            parent and parent.event_id,
            Status.PENDING,
            created_at_us,
            created_at_us,
            execution.opening_json,
        ),
    )
    return None


def _post(connection: sqlite3.Connection, message: Message) -> bool:
    """Insert a message. Returns False if its receiver is not live or has another execution."""
    values = (
        message.sequence,
        message.target,
        message.execution_id,
        json.dumps(message.event, separators=(",", ":")),
    )
    if message.target.startswith("@"):
        connection.execute("INSERT INTO inbox VALUES (?, ?, ?, ?)", values)
        return True
    inserted = connection.execute(
        "INSERT INTO inbox SELECT ?, ?, ?, ? FROM instances WHERE instance_id = ?"  # noqa: S608 - placeholders only
        f" AND execution_id = coalesce(?, execution_id) AND status IN ({marks(_LIVE)})",
        (*values, message.target, message.execution_id, *_LIVE),
    )
    return inserted.rowcount == 1


def _consume(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    rows: dict[str, list[tuple[object, ...]]] = {}
    for message in messages:
        if message.sequence is not None:
            rows.setdefault("inbox WHERE sequence = ?", []).append((message.sequence,))
        else:
            event = message.event
            place, key = (
                ("timers", event["TimerId"])
                if event["EventType"] == EventType.TIMER_FIRED
                else ("activities", event["TaskScheduledId"])
            )
            rows.setdefault(f"{place} WHERE execution_id = ? AND event_id = ?", []).append(
                (message.execution_id, key)
            )
    for place, keys in rows.items():
        removed = connection.executemany(f"DELETE FROM {place}", keys)  # noqa: S608 - one of the above
        if removed.rowcount != len(keys):
            raise Conflict(
                f"{len(keys) - removed.rowcount} messages to {messages[0].target} are not in the "
                "store (any more)"
            )


def _forget(connection: sqlite3.Connection, turn: EpisodeCommit) -> None:
    """Delete the timers, activities and messages of an execution that is over."""
    execution, whole = turn.execution, turn.next_execution is None
    for table in ("timers",) if turn.leaves_activities else ("timers", "activities"):
        connection.execute(
            f"DELETE FROM {table} WHERE execution_id = ?",  # noqa: S608 - a name from the line above
            (execution.execution_id,),
        )
    connection.execute(
        "DELETE FROM inbox WHERE target = ? AND (? OR execution_id = ?)",
        (execution.instance_id, whole, execution.execution_id),
    )


def _renew(
    connection: sqlite3.Connection, execution: Execution, following: Execution, at: datetime
) -> None:
    """Continue as new: set another execution id and input, delete the history."""
    connection.execute("DELETE FROM history WHERE execution_id = ?", (execution.execution_id,))
    connection.execute(
        "UPDATE instances SET execution_id = ?, input_json = ?, version = ?, opening_json = ?,"
        " started = 0, updated_at_us = ? WHERE instance_id = ?",
        (
            following.execution_id,
            following.input_json,
            following.version,
            following.opening_json,
            microseconds(at),
            execution.instance_id,
        ),
    )
