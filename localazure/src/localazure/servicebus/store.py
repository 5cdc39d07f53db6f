"""The durable state of the namespace: SQL transactions, each a plain function of a connection.

`localazure.sqlite.database.Database` commits them in the order in which they are submitted, so a
decision made in memory after another is never durable before it. Sequence
numbers and duplicates are decided within the transaction, hence in commit order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from localazure.servicebus.amqp.decoding import decode
from localazure.servicebus.amqp.encoding import encode
from localazure.servicebus.queues import Entry, MessageState, Place, Transition

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
        ttl_ms INTEGER,                         -- what the sender asked for
        annotations BLOB NOT NULL,              -- the sender's message annotations, encoded
        bare BLOB NOT NULL,                     -- the bare message, as the sender encoded it
        dead_letter_reason TEXT,
        dead_letter_description TEXT,
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
)


@dataclass(frozen=True, slots=True)
class Destination:
    """An entity that a message is put into."""

    entity: int
    default_ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class Submission:
    """A message that was sent, with where it goes and what detects its duplicates."""

    entity: int
    """What it was sent to: detects duplicates, and keeps it while it is scheduled."""
    message_id: str | None
    ttl_ms: int | None
    due_ms: int | None
    """When it becomes active; None for at once."""
    annotations: dict[Any, Any]
    bare: bytes
    duplicate_window_ms: int | None
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A message that a transaction put into an entity."""

    entity: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a submission."""

    sequence_number: int
    """In the entity that it was sent to; of the first one if this is a duplicate."""
    placed: tuple[Placed, ...]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What is needed to send a message out."""

    entry: Entry
    enqueued_ms: int
    ttl_ms: int | None
    annotations: dict[Any, Any]
    bare: bytes
    dead_letter_reason: str | None
    dead_letter_description: str | None
    dead_letter_source: str | None


def entity_id(connection: sqlite3.Connection, path: str) -> int:
    """The number of an entity, made when missing."""
    connection.execute("INSERT OR IGNORE INTO entity (path) VALUES (?)", (path.lower(),))
    query = "SELECT id FROM entity WHERE path = ?"
    return connection.execute(query, (path.lower(),)).fetchone()["id"]


def submit(
    connection: sqlite3.Connection, submissions: Sequence[Submission], now_ms: int
) -> list[Receipt]:
    """Put messages where they go, leaving out duplicates; all of them or none."""
    return [_submit(connection, submission, now_ms) for submission in submissions]


def _submit(connection: sqlite3.Connection, message: Submission, now_ms: int) -> Receipt:
    if message.duplicate_window_ms is not None and message.message_id is not None:
        first = connection.execute(
            "SELECT sequence_number FROM history "
            "WHERE entity = ? AND message_id = ? AND expires_ms > ?",
            (message.entity, message.message_id, now_ms),
        ).fetchone()
        if first is not None:
            return Receipt(first["sequence_number"], ())
    if message.due_ms is not None and message.due_ms > now_ms:
        scheduled = Entry(0, MessageState.SCHEDULED, due_ms=message.due_ms)
        placed = (_insert(connection, message, message.entity, scheduled, now_ms),)
    else:
        placed = tuple(
            _insert(
                connection,
                message,
                destination.entity,
                Entry(0, expires_ms=_expiry(now_ms, message.ttl_ms, destination)),
                now_ms,
            )
            for destination in message.destinations
        )
    own = [item.entry.sequence_number for item in placed if item.entity == message.entity]
    # A topic numbers a message even if no subscription took it, or several did.
    number = own[0] if own else _next_number(connection, message.entity)
    if message.duplicate_window_ms is not None and message.message_id is not None:
        connection.execute(
            "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)",
            (message.entity, message.message_id, number, now_ms + message.duplicate_window_ms),
        )
    return Receipt(number, placed)


def _insert(
    connection: sqlite3.Connection, message: Submission, entity: int, entry: Entry, now_ms: int
) -> Placed:
    number = _next_number(connection, entity)
    connection.execute(
        "INSERT INTO message (entity, sequence_number, state, enqueued_ms, due_ms, expires_ms,"
        " ttl_ms, annotations, bare) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            entity,
            number,
            entry.state,
            now_ms,
            entry.due_ms,
            entry.expires_ms,
            message.ttl_ms,
            encode(message.annotations),
            message.bare,
        ),
    )
    return Placed(entity, Entry(number, entry.state, 0, entry.expires_ms, entry.due_ms))


def _next_number(connection: sqlite3.Connection, entity: int) -> int:
    query = (
        "UPDATE entity SET last_sequence_number = last_sequence_number + 1 WHERE id = ?"
        " RETURNING last_sequence_number"
    )
    return connection.execute(query, (entity,)).fetchone()[0]


def _expiry(now_ms: int, ttl_ms: int | None, destination: Destination) -> int | None:
    """The shorter of the message's lifetime and the entity's, from now."""
    lifetimes = [ttl for ttl in (ttl_ms, destination.default_ttl_ms) if ttl is not None]
    return now_ms + min(lifetimes) if lifetimes else None


def apply(connection: sqlite3.Connection, entity: int, transition: Transition) -> None:
    """Make a transition durable that keeps the message in its entity, or ends it."""
    number = transition.before.sequence_number
    if transition.place is Place.GONE:
        connection.execute(
            "DELETE FROM message WHERE entity = ? AND sequence_number = ?", (entity, number)
        )
        return
    after = transition.after
    connection.execute(
        "UPDATE message SET state = ?, delivery_count = ?, expires_ms = ?,"
        " is_dead_letter = MAX(is_dead_letter, ?),"
        " dead_letter_reason = COALESCE(?, dead_letter_reason),"
        " dead_letter_description = COALESCE(?, dead_letter_description)"
        " WHERE entity = ? AND sequence_number = ?",
        (
            after.state,
            after.delivery_count,
            after.expires_ms,
            transition.place is Place.DEAD_LETTERS,
            transition.reason,
            transition.description,
            entity,
            number,
        ),
    )


def move(
    connection: sqlite3.Connection,
    entity: int,
    transition: Transition,
    destinations: Sequence[Destination],
    now_ms: int,
    *,
    dead_letter_source: str | None = None,
) -> list[Placed]:
    """Put a message into other entities, or anew into its own: when it becomes due or is forwarded.

    It gets a new sequence number and its lifetime begins: it counts as enqueued now.
    """
    number = transition.before.sequence_number
    key = (entity, number)
    row = connection.execute(
        "SELECT ttl_ms FROM message WHERE entity = ? AND sequence_number = ?", key
    ).fetchone()
    if row is None:
        return []
    placed: list[Placed] = []
    for destination in destinations:
        new_number = _next_number(connection, destination.entity)
        entry = Entry(new_number, expires_ms=_expiry(now_ms, row["ttl_ms"], destination))
        connection.execute(
            "INSERT INTO message SELECT ?, ?, 0, ?, 0, ?, 0, ?, ttl_ms, annotations, bare,"
            " COALESCE(?, dead_letter_reason), COALESCE(?, dead_letter_description),"
            " COALESCE(?, dead_letter_source)"
            " FROM message WHERE entity = ? AND sequence_number = ?",
            (
                destination.entity,
                new_number,
                entry.state,
                now_ms,
                entry.expires_ms,
                transition.reason,
                transition.description,
                dead_letter_source,
                *key,
            ),
        )
        placed.append(Placed(destination.entity, entry))
    connection.execute("DELETE FROM message WHERE entity = ? AND sequence_number = ?", key)
    return placed


def forget_history(connection: sqlite3.Connection, now_ms: int) -> None:
    """Delete what duplicate detection needs no more."""
    connection.execute("DELETE FROM history WHERE expires_ms <= ?", (now_ms,))


# --- reading --------------------------------------------------------------------------------------


class Reader(Protocol):
    """Whatever answers queries over what is committed: a `localazure.sqlite.database.Database`."""

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """Rows of a query."""
        ...


_ENTRY = "sequence_number, state, delivery_count, expires_ms, due_ms"
_CONTENT = (
    f"{_ENTRY}, enqueued_ms, ttl_ms, annotations, bare, dead_letter_reason,"
    " dead_letter_description, dead_letter_source"
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
    annotations, _ = decode(row["annotations"])
    return StoredMessage(
        _entry(row),
        row["enqueued_ms"],
        row["ttl_ms"],
        annotations,
        row["bare"],
        row["dead_letter_reason"],
        row["dead_letter_description"],
        row["dead_letter_source"],
    )


def entries(reader: Reader, entity: int, *, is_dead_letter: bool) -> list[Entry]:
    """Everything in a queue or its dead-letter sub-queue, to start from."""
    rows = reader.read(
        f"SELECT {_ENTRY} FROM message WHERE entity = ? AND is_dead_letter = ?",  # noqa: S608 - a constant
        (entity, is_dead_letter),
    )
    return [_entry(row) for row in rows]


def message(reader: Reader, entity: int, sequence_number: int) -> StoredMessage | None:
    """One message; None if it is not, or no more, in the entity."""
    rows = reader.read(
        f"SELECT {_CONTENT} FROM message WHERE entity = ? AND sequence_number = ?",  # noqa: S608 - a constant
        (entity, sequence_number),
    )
    return _message(rows[0]) if rows else None


def browse(
    reader: Reader, entity: int, *, is_dead_letter: bool, start: int, count: int
) -> list[StoredMessage]:
    """Up to `count` messages in any state from sequence number `start`, in order."""
    rows = reader.read(
        f"SELECT {_CONTENT} FROM message WHERE entity = ? AND is_dead_letter = ?"  # noqa: S608 - a constant
        " AND sequence_number >= ? ORDER BY sequence_number LIMIT ?",
        (entity, is_dead_letter, start, count),
    )
    return [_message(row) for row in rows]


def orphans(reader: Reader, known: Sequence[int]) -> list[tuple[str, int]]:
    """Path and message count of entities that hold messages and are not configured any more."""
    rows = reader.read(
        "SELECT entity, path, COUNT(*) AS messages FROM message JOIN entity ON entity.id = entity"
        " GROUP BY entity"
    )
    return [(row["path"], row["messages"]) for row in rows if row["entity"] not in known]
