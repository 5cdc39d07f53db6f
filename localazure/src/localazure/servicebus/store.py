"""The durable state of the namespace: SQL transactions, each a plain function of a connection.

`localazure.sqlite.database.Database` commits them in the order of its `write` calls, so changes
become durable in the order in which they were made in memory. A transaction assigns sequence
numbers and finds duplicates itself, hence in commit order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp import message as amqp_message
from localazure.servicebus.amqp.decoding import decode
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.amqp.performatives import Properties
from localazure.servicebus.queues import Action, Entry, MessageState, Transition
from localazure.sqlite.query import Query

MIGRATIONS = (
    """
    CREATE TABLE entity (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,              -- in lower case: names ignore case
        last_sequence_number INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE message (
        entity INTEGER NOT NULL REFERENCES entity,
        sequence_number INTEGER NOT NULL,
        is_dead_letter INTEGER NOT NULL DEFAULT 0,
        state INTEGER NOT NULL,                 -- MessageState
        delivery_count INTEGER NOT NULL DEFAULT 0,
        enqueued_ms INTEGER NOT NULL,
        due_ms INTEGER NOT NULL DEFAULT 0,      -- of a scheduled message
        expires_ms INTEGER,
        ttl_ms INTEGER,                         -- as the sender set it
        priority INTEGER,                       -- as the sender set it
        delivery_annotations BLOB NOT NULL,     -- of the sender, encoded
        annotations BLOB NOT NULL,              -- message annotations of the sender, encoded
        bare BLOB NOT NULL,                     -- the bare message, encoded
        dead_letter_source TEXT,                -- of a forwarded dead letter
        PRIMARY KEY (entity, sequence_number)
    );
    CREATE TABLE history (                      -- of duplicate detection
        entity INTEGER NOT NULL REFERENCES entity,
        message_id TEXT NOT NULL,
        sequence_number INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        PRIMARY KEY (entity, message_id)
    ) WITHOUT ROWID;
    CREATE INDEX history_expiry ON history (expires_ms);
    """,
    "ALTER TABLE message RENAME COLUMN is_dead_letter TO sub_queue",  # SubQueueKind
)


@dataclass(frozen=True, slots=True)
class Destination:
    """An entity that gets a copy of a message, and what becomes of it there."""

    entity: int
    default_ttl_ms: int | None
    kind: SubQueueKind = SubQueueKind.ACTIVE
    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    """Application properties that the copy gets."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message as its sender sent it, and the fields that the broker reads."""

    bare: bytes
    properties: Properties
    """The properties section of `bare`."""
    ttl_ms: int | None = None
    due_ms: int | None = None
    """The scheduled enqueue time, if any."""
    priority: int | None = None
    delivery_annotations: dict[Any, Any] = field(default_factory=dict[Any, Any])
    annotations: dict[Any, Any] = field(default_factory=dict[Any, Any])

    @property
    def message_id(self) -> str | None:
        """The message id as text. Ids of different AMQP types give different texts."""
        identity = self.properties.message_id
        if identity is None or isinstance(identity, str):
            return identity or None
        return f"\0{type(identity).__name__}:{identity!r}"


@dataclass(frozen=True, slots=True)
class Submission:
    """A message that was sent, and its destinations."""

    entity: int
    """The entity that it was sent to, which detects duplicates and holds scheduled messages."""
    message: SentMessage
    duplicate_window_ms: int | None
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A message that a transaction put into an entity."""

    entity: int
    entry: Entry
    kind: SubQueueKind = SubQueueKind.ACTIVE


@dataclass(frozen=True, slots=True)
class Receipt:
    """Result of a submission."""

    sequence_number: int
    """The number in the entity that the message was sent to. A duplicate has that of the first."""
    enqueued: tuple[Enqueued, ...]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its contents."""

    entry: Entry
    enqueued_ms: int
    ttl_ms: int | None
    priority: int | None
    delivery_annotations: dict[Any, Any]
    annotations: dict[Any, Any]
    bare: bytes
    dead_letter_source: str | None


def entity_id(connection: sqlite3.Connection, path: str) -> int:
    """Return the number of an entity. A new entity gets a new number."""
    connection.execute("INSERT OR IGNORE INTO entity (path) VALUES (?)", (path.lower(),))
    query = "SELECT id FROM entity WHERE path = ?"
    return connection.execute(query, (path.lower(),)).fetchone()["id"]


def submit(
    connection: sqlite3.Connection, submissions: Sequence[Submission], now_ms: int
) -> list[Receipt]:
    """Put all messages, except duplicates, into their destinations, or none of them."""
    return [_submit(connection, submission, now_ms) for submission in submissions]


def _submit(connection: sqlite3.Connection, submission: Submission, now_ms: int) -> Receipt:
    message, window_ms = submission.message, submission.duplicate_window_ms
    identity = message.message_id
    if window_ms is not None and identity is not None:
        first = connection.execute(
            "SELECT sequence_number FROM history "
            "WHERE entity = ? AND message_id = ? AND expires_ms > ?",
            (submission.entity, identity, now_ms),
        ).fetchone()
        if first is not None:
            return Receipt(first["sequence_number"], ())
    if message.due_ms is not None and message.due_ms > now_ms:
        scheduled = Entry(0, MessageState.SCHEDULED, due_ms=message.due_ms)
        here = Destination(submission.entity, None)
        enqueued = (_insert(connection, message, here, scheduled, now_ms),)
    else:
        enqueued = tuple(
            _insert(
                connection,
                message,
                destination,
                Entry(0, expires_ms=_expiry(now_ms, message.ttl_ms, destination)),
                now_ms,
            )
            for destination in submission.destinations
        )
    own = [item.entry.sequence_number for item in enqueued if item.entity == submission.entity]
    # A topic has its own sequence numbers, even if no subscription matches.
    number = own[0] if own else _next_number(connection, submission.entity)
    if window_ms is not None and identity is not None:
        connection.execute(
            "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)",
            (submission.entity, identity, number, now_ms + window_ms),
        )
    return Receipt(number, enqueued)


def _insert(
    connection: sqlite3.Connection,
    message: SentMessage,
    destination: Destination,
    entry: Entry,
    now_ms: int,
) -> Enqueued:
    number = _next_number(connection, destination.entity)
    connection.execute(
        "INSERT INTO message (entity, sequence_number, sub_queue, state, enqueued_ms, due_ms,"
        " expires_ms, ttl_ms, priority, delivery_annotations, annotations, bare)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            destination.entity,
            number,
            destination.kind,
            entry.state,
            now_ms,
            entry.due_ms,
            entry.expires_ms,
            message.ttl_ms,
            message.priority,
            encode(message.delivery_annotations),
            encode(message.annotations),
            _replace_properties(message.bare, destination.properties),
        ),
    )
    return Enqueued(destination.entity, replace(entry, sequence_number=number), destination.kind)


def _replace_properties(bare: bytes, properties: dict[str, Any]) -> bytes:
    return amqp_message.replace_application_properties(bare, properties) if properties else bare


def _next_number(connection: sqlite3.Connection, entity: int) -> int:
    query = (
        "UPDATE entity SET last_sequence_number = last_sequence_number + 1 WHERE id = ?"
        " RETURNING last_sequence_number"
    )
    return connection.execute(query, (entity,)).fetchone()[0]


def _expiry(now_ms: int, ttl_ms: int | None, destination: Destination) -> int | None:
    """Expiry by the shorter time to live, of the message or of the entity, from now."""
    if destination.kind is not SubQueueKind.ACTIVE:
        return None  # dead letters do not expire
    lifetimes = [ttl for ttl in (ttl_ms, destination.default_ttl_ms) if ttl is not None]
    return now_ms + min(lifetimes) if lifetimes else None


def apply(connection: sqlite3.Connection, entity: int, transition: Transition) -> None:
    """Write a transition that removes the message or keeps it in its entity."""
    number = transition.before.sequence_number
    if transition.action is Action.REMOVE:
        connection.execute(
            "DELETE FROM message WHERE entity = ? AND sequence_number = ?", (entity, number)
        )
        return
    after = transition.after
    connection.execute(
        "UPDATE message SET state = ?, delivery_count = ?, expires_ms = ?,"
        " sub_queue = MAX(sub_queue, ?) WHERE entity = ? AND sequence_number = ?",
        (
            after.state,
            after.delivery_count,
            after.expires_ms,
            transition.action is Action.DEAD_LETTER and SubQueueKind.DEAD_LETTER,
            entity,
            number,
        ),
    )
    if transition.properties:
        where = "WHERE entity = ? AND sequence_number = ?"
        for row in connection.execute(f"SELECT bare FROM message {where}", (entity, number)):  # noqa: S608 - a constant
            bare = _replace_properties(row["bare"], transition.properties)
            connection.execute(f"UPDATE message SET bare = ? {where}", (bare, entity, number))  # noqa: S608 - a constant


def move(
    connection: sqlite3.Connection,
    entity: int,
    transition: Transition,
    destinations: Sequence[Destination],
    now_ms: int,
    *,
    dead_letter_source: str | None = None,
) -> list[Enqueued]:
    """Move a message that is due or forwarded, to other entities or within its own.

    It gets a new sequence number and a new enqueued time, and its time to live starts.
    """
    number = transition.before.sequence_number
    key = (entity, number)
    row = connection.execute(
        "SELECT ttl_ms, bare FROM message WHERE entity = ? AND sequence_number = ?", key
    ).fetchone()
    if row is None:
        return []
    bare = _replace_properties(row["bare"], transition.properties)
    enqueued: list[Enqueued] = []
    for destination in destinations:
        new_number = _next_number(connection, destination.entity)
        entry = Entry(new_number, expires_ms=_expiry(now_ms, row["ttl_ms"], destination))
        connection.execute(
            "INSERT INTO message SELECT ?, ?, ?, ?, 0, ?, 0, ?, ttl_ms, priority,"
            " delivery_annotations, annotations, ?, COALESCE(?, dead_letter_source)"
            " FROM message WHERE entity = ? AND sequence_number = ?",
            (
                destination.entity,
                new_number,
                destination.kind,
                entry.state,
                now_ms,
                entry.expires_ms,
                _replace_properties(bare, destination.properties),
                dead_letter_source,
                *key,
            ),
        )
        enqueued.append(Enqueued(destination.entity, entry, destination.kind))
    connection.execute("DELETE FROM message WHERE entity = ? AND sequence_number = ?", key)
    return enqueued


def purge_history(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete message ids that are older than the window of duplicate detection."""
    connection.execute("DELETE FROM history WHERE expires_ms <= ?", (now_ms,))


# --- reading --------------------------------------------------------------------------------------


_ENTRY = "sequence_number, state, delivery_count, expires_ms, due_ms"
_CONTENT = (
    f"{_ENTRY}, enqueued_ms, ttl_ms, priority, delivery_annotations, annotations, bare,"
    " dead_letter_source"
)


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        row["sequence_number"],
        MessageState(row["state"]),
        row["delivery_count"],
        row["expires_ms"],
        row["due_ms"],
    )


def _message(row: sqlite3.Row) -> StoredMessage:
    return StoredMessage(
        _entry(row),
        row["enqueued_ms"],
        row["ttl_ms"],
        row["priority"],
        decode(row["delivery_annotations"])[0],
        decode(row["annotations"])[0],
        row["bare"],
        row["dead_letter_source"],
    )


def entries(query: Query, entity: int, kind: SubQueueKind) -> list[Entry]:
    """All messages of an entity, or of a sub-queue."""
    rows = query(
        f"SELECT {_ENTRY} FROM message WHERE entity = ? AND sub_queue = ?",  # noqa: S608 - a constant
        (entity, kind),
    )
    return [_entry(row) for row in rows]


def message(query: Query, entity: int, sequence_number: int) -> StoredMessage | None:
    """One message; None if the entity does not hold it."""
    rows = query(
        f"SELECT {_CONTENT} FROM message WHERE entity = ? AND sequence_number = ?",  # noqa: S608 - a constant
        (entity, sequence_number),
    )
    return _message(rows[0]) if rows else None


def peek(
    query: Query, entity: int, kind: SubQueueKind, *, start: int, count: int
) -> list[StoredMessage]:
    """Up to `count` messages in any state from sequence number `start`, in order."""
    rows = query(
        f"SELECT {_CONTENT} FROM message WHERE entity = ? AND sub_queue = ?"  # noqa: S608 - a constant
        " AND sequence_number >= ? ORDER BY sequence_number LIMIT ?",
        (entity, kind, start, count),
    )
    return [_message(row) for row in rows]


def unconfigured_entities(query: Query, configured: Sequence[int]) -> list[tuple[str, int]]:
    """Path and message count of entities that hold messages but are not configured."""
    rows = query(
        "SELECT entity, path, COUNT(*) AS messages FROM message JOIN entity ON entity.id = entity"
        " GROUP BY entity",
        (),
    )
    return [(row["path"], row["messages"]) for row in rows if row["entity"] not in configured]
