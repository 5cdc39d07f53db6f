"""The durable state of Event Grid: events, deliveries, subscriptions, counts.

An event is acknowledged once it and all its deliveries are committed. A delivery's row is deleted
after the delivery. So a crash in between can repeat a delivery but not lose it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localazure.eventgrid.schemas import Event, Schema
from localazure.sqlite.database import Database

MIGRATIONS = (
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        schema TEXT NOT NULL,
        body TEXT NOT NULL,
        published_seconds REAL NOT NULL
    );
    CREATE TABLE deliveries (
        subscription TEXT NOT NULL,
        event INTEGER NOT NULL REFERENCES events,
        due_seconds REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        last_outcome TEXT,
        last_attempt_seconds REAL,
        dead_letter_reason TEXT,
        PRIMARY KEY (subscription, event)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_by_due ON deliveries (subscription, due_seconds, event);
    CREATE INDEX deliveries_by_event ON deliveries (event);
    CREATE TABLE subscriptions (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE validated (subscription TEXT PRIMARY KEY, url TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE counts (
        subscription TEXT NOT NULL,
        what TEXT NOT NULL,
        number INTEGER NOT NULL,
        PRIMARY KEY (subscription, what)
    ) WITHOUT ROWID;
    """,
)

COUNTS = ("matched", "delivered", "failed", "deadLettered", "dropped")


@dataclass(frozen=True)
class Delivery:
    """The delivery of one event to one subscription.

    Attributes:
        event_id: the number in this store, not the publisher's id.
        event: the event as published, in `schema`.
        size_bytes: size of the event as JSON.
        attempts: number of attempts so far.
        published_seconds: Unix time, like all other times.
        dead_letter_reason: set for an event that will be dead-lettered.
    """

    event_id: int
    event: Event
    size_bytes: int
    schema: Schema
    published_seconds: float
    attempts: int = 0
    last_outcome: str | None = None
    last_attempt_seconds: float | None = None
    dead_letter_reason: str | None = None


class Store:
    """The durable state of Event Grid."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, MIGRATIONS)

    def close(self) -> None:
        """Finish the pending writes, then close."""
        self._database.close()

    async def accept(
        self, events: Sequence[tuple[Event, Sequence[str]]], schema: Schema, now_seconds: float
    ) -> None:
        """Store events and the subscriptions that they match. They are durable on return."""
        wanted = [(json.dumps(event), names) for event, names in events if names]
        matched = Counter(name for _, names in wanted for name in names)

        def insert(connection: sqlite3.Connection) -> None:
            for body, names in wanted:
                cursor = connection.execute(
                    "INSERT INTO events (schema, body, published_seconds) VALUES (?, ?, ?)",
                    (schema.value, body, now_seconds),
                )
                for name in names:
                    connection.execute(
                        "INSERT INTO deliveries (subscription, event, due_seconds)"
                        " VALUES (?, ?, ?)",
                        (name, cursor.lastrowid, now_seconds),
                    )
            for name, number in matched.items():
                _count(connection, name, "matched", number)

        if wanted:
            await self._database.write(insert)

    def due(
        self, subscription: str, now_seconds: float, limit: int, without: Collection[int]
    ) -> list[Delivery]:
        """Due deliveries, oldest first, except deliveries in flight."""
        rows = self._database.read(
            """
            SELECT * FROM deliveries JOIN events ON events.id = deliveries.event
            WHERE subscription = ? AND due_seconds <= ? ORDER BY due_seconds, event LIMIT ?
            """,
            (subscription, now_seconds, limit + len(without)),
        )
        return [
            Delivery(
                row["event"],
                json.loads(row["body"]),
                len(row["body"]),
                Schema(row["schema"]),
                row["published_seconds"],
                row["attempts"],
                row["last_outcome"],
                row["last_attempt_seconds"],
                row["dead_letter_reason"],
            )
            for row in rows
            if row["event"] not in without
        ][:limit]

    def next_due_seconds(self, subscription: str, after_seconds: float) -> float | None:
        """The due time of the next delivery after `after_seconds`."""
        ((due_seconds,),) = self._database.read(
            "SELECT MIN(due_seconds) FROM deliveries WHERE subscription = ? AND due_seconds > ?",
            (subscription, after_seconds),
        )
        return due_seconds

    async def finish(self, subscription: str, event_ids: Sequence[int], what: str) -> None:
        """End deliveries and count them as delivered, deadLettered or dropped."""

        def delete(connection: sqlite3.Connection) -> None:
            for event_id in event_ids:
                connection.execute(
                    "DELETE FROM deliveries WHERE subscription = ? AND event = ?",
                    (subscription, event_id),
                )
                _delete_if_delivered(connection, event_id)
            _count(connection, subscription, what, len(event_ids))

        await self._database.write(delete)

    async def postpone(
        self, subscription: str, deliveries: Sequence[tuple[float, Delivery]], failed: int
    ) -> None:
        """Store deliveries with their next attempt times, and count failed attempts."""

        def update(connection: sqlite3.Connection) -> None:
            for due_seconds, later in deliveries:
                connection.execute(
                    "UPDATE deliveries SET due_seconds = ?, attempts = ?, last_outcome = ?,"
                    " last_attempt_seconds = ?, dead_letter_reason = ?"
                    " WHERE subscription = ? AND event = ?",
                    (
                        due_seconds,
                        later.attempts,
                        later.last_outcome,
                        later.last_attempt_seconds,
                        later.dead_letter_reason,
                        subscription,
                        later.event_id,
                    ),
                )
            _count(connection, subscription, "failed", failed)

        await self._database.write(update)

    def validated_url(self, subscription: str) -> str | None:
        """The URL that was validated for this subscription."""
        rows = self._database.read(
            "SELECT url FROM validated WHERE subscription = ?", (subscription,)
        )
        return rows[0]["url"] if rows else None

    async def set_validated(self, subscription: str, url: str) -> None:
        """Store a successful handshake."""
        await self._execute("INSERT OR REPLACE INTO validated VALUES (?, ?)", (subscription, url))

    def put_subscriptions(self) -> list[tuple[str, Any]]:
        """Names and bodies of the subscriptions that were added at run time."""
        rows = self._database.read("SELECT * FROM subscriptions ORDER BY name")
        return [(row["name"], json.loads(row["body"])) for row in rows]

    async def put_subscription(self, name: str, body: Mapping[str, Any]) -> None:
        """Store a subscription that was added at run time."""
        await self._execute(
            "INSERT OR REPLACE INTO subscriptions VALUES (?, ?)", (name, json.dumps(body))
        )

    def subscriptions_with_deliveries(self) -> set[str]:
        """Names of subscriptions with undelivered events."""
        rows = self._database.read("SELECT DISTINCT subscription FROM deliveries")
        return {row["subscription"] for row in rows}

    async def remove_subscription(self, name: str) -> int:
        """Delete a subscription and its deliveries. Returns the number of deliveries."""

        def remove(connection: sqlite3.Connection) -> int:
            waiting = connection.execute(
                "SELECT event FROM deliveries WHERE subscription = ?", (name,)
            ).fetchall()
            connection.execute("DELETE FROM deliveries WHERE subscription = ?", (name,))
            for row in waiting:
                _delete_if_delivered(connection, row["event"])
            connection.execute("DELETE FROM subscriptions WHERE name = ?", (name,))
            connection.execute("DELETE FROM validated WHERE subscription = ?", (name,))
            connection.execute("DELETE FROM counts WHERE subscription = ?", (name,))
            return len(waiting)

        return await self._database.write(remove)

    def counts(self, subscription: str) -> dict[str, int]:
        """Counts of matched, delivered, failed, dead-lettered, dropped and waiting events."""
        # Use one query: a delivery that ends between two queries would be in neither result.
        rows = self._database.read(
            "SELECT what, number FROM counts WHERE subscription = ?1"
            " UNION ALL SELECT 'waiting', COUNT(*) FROM deliveries WHERE subscription = ?1",
            (subscription,),
        )
        return dict.fromkeys(COUNTS, 0) | {row["what"]: row["number"] for row in rows}

    async def _execute(self, sql: str, parameters: Sequence[Any]) -> None:
        def execute(connection: sqlite3.Connection) -> None:
            connection.execute(sql, parameters)

        await self._database.write(execute)


def _count(connection: sqlite3.Connection, subscription: str, what: str, number: int) -> None:
    connection.execute(
        "INSERT INTO counts VALUES (?, ?, ?)"
        " ON CONFLICT (subscription, what) DO UPDATE SET number = number + excluded.number",
        (subscription, what, number),
    )


def _delete_if_delivered(connection: sqlite3.Connection, event_id: int) -> None:
    connection.execute(
        "DELETE FROM events WHERE id = ?"
        " AND NOT EXISTS (SELECT 1 FROM deliveries WHERE event = events.id)",
        (event_id,),
    )
