"""The outbox of blob events: an intent before the write, then an event until it is published.

A crash can leave an intent without an outcome: the next start compares it with the blob
(`reconciliation.py`). It can also leave an event that was published: it is published again. No
event of an acknowledged write is lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localazure.sqlite.database import Database
from localazure.storage.events import with_sequencer
from localazure.storage.operations import Api, Operation, Properties

MIGRATIONS = (
    """
    CREATE TABLE intents (
        id TEXT PRIMARY KEY,
        made_seconds REAL NOT NULL,
        api TEXT NOT NULL,
        path TEXT NOT NULL,
        client_request_id TEXT NOT NULL,
        properties TEXT
    ) WITHOUT ROWID;
    -- AUTOINCREMENT never uses a number twice, not even of a deleted row: it is the sequencer.
    CREATE TABLE events (sequence INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
    """,
    """
    ALTER TABLE intents ADD COLUMN source TEXT NOT NULL DEFAULT '';
    ALTER TABLE intents ADD COLUMN is_recursive INTEGER NOT NULL DEFAULT 0;
    """,
)


@dataclass(frozen=True)
class Intent:
    """An operation that was forwarded or about to be forwarded.

    Attributes:
        id: the id of the later event.
        made_seconds: Unix time.
        before: the blob's properties before the operation, if needed; None if there was no blob.
    """

    id: str
    made_seconds: float
    operation: Operation
    before: Properties | None = None


class Outbox:
    """The durable outbox of one storage account."""

    def __init__(self, path: Path) -> None:
        # No fsync, as for Azurite's blobs: a power failure may lose the last events and blobs.
        self._database = Database(path, MIGRATIONS, is_fsynced=False)
        self.filled = asyncio.Event()
        if self.oldest(1):
            self.filled.set()

    def close(self) -> None:
        """Finish the pending writes, then close."""
        self._database.close()

    async def intend(
        self, operations: Sequence[tuple[Operation, Properties | None]]
    ) -> list[Intent]:
        """Store operations with the previous properties of their blobs, in one durable commit."""
        now_seconds = time.time()
        intents = [Intent(str(uuid.uuid4()), now_seconds, *operation) for operation in operations]
        rows = [
            (
                intent.id,
                intent.made_seconds,
                intent.operation.api.value,
                intent.operation.path,
                intent.operation.client_request_id,
                json.dumps(dataclasses.asdict(intent.before)) if intent.before else None,
                intent.operation.source,
                intent.operation.is_recursive,
            )
            for intent in intents
        ]

        def insert(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT INTO intents VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

        await self._database.write(insert)
        return intents

    async def settle(self, outcomes: Sequence[tuple[Intent, dict[str, Any] | None]]) -> None:
        """Replace intents by their events; delete intents of operations that did not take place.

        Sequencers follow the order of calls, not of returns.
        """

        def replace(connection: sqlite3.Connection) -> None:
            for intent, event in outcomes:
                connection.execute("DELETE FROM intents WHERE id = ?", (intent.id,))
                if event is not None:
                    connection.execute("INSERT INTO events (body) VALUES (?)", (json.dumps(event),))

        await self._database.write(replace)
        if any(event is not None for _, event in outcomes):
            self.filled.set()

    def unsettled(self) -> list[Intent]:
        """Intents without an outcome, oldest first."""
        rows = self._database.read("SELECT * FROM intents ORDER BY made_seconds")
        return [
            Intent(
                row["id"],
                row["made_seconds"],
                Operation(
                    Api(row["api"]),
                    row["path"],
                    row["client_request_id"],
                    row["source"],
                    bool(row["is_recursive"]),
                ),
                Properties(**json.loads(row["properties"])) if row["properties"] else None,
            )
            for row in rows
        ]

    def oldest(self, limit: int) -> list[tuple[int, dict[str, Any]]]:
        """The oldest events, with their sequence numbers."""
        rows = self._database.read("SELECT * FROM events ORDER BY sequence LIMIT ?", (limit,))
        return [
            (row["sequence"], with_sequencer(json.loads(row["body"]), row["sequence"]))
            for row in rows
        ]

    async def published(self, numbers: Sequence[int]) -> None:
        """Delete events that Event Grid has acknowledged, by their sequence numbers."""
        rows = [(number,) for number in numbers]

        def delete(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM events WHERE sequence = ?", rows)

        await self._database.write(delete)
