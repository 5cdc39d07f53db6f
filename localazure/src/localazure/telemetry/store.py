"""The spans that are kept: each once, the newest for a week."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from localazure.sqlite.database import Database
from localazure.telemetry.otlp import ReceivedSpan

KEPT_SECONDS = 7 * 86_400.0
KEPT_SPANS = 200_000

MIGRATIONS = (
    """
    CREATE TABLE spans (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        resource TEXT NOT NULL,
        scope TEXT NOT NULL,
        body TEXT NOT NULL,
        received_seconds REAL NOT NULL,
        UNIQUE (trace_id, span_id)
    );
    CREATE INDEX spans_by_age ON spans (received_seconds);
    """,
)


class Store:
    """Spans in SQLite.

    Args:
        path: the file.
        kept_spans: how many at most; the oldest go first.
    """

    def __init__(self, path: Path, kept_spans: int = KEPT_SPANS) -> None:
        self._database = Database(path, MIGRATIONS)
        self._kept_spans = kept_spans

    def close(self) -> None:
        """Finish the pending writes, then close."""
        self._database.close()

    async def keep(self, spans: Sequence[ReceivedSpan], now_seconds: float) -> None:
        """Keep spans, and delete what is too old. A repeated span replaces the first."""

        def insert(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO spans (trace_id, span_id, resource, scope, body, received_seconds)"
                " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (trace_id, span_id) DO UPDATE SET"
                " resource = excluded.resource, scope = excluded.scope, body = excluded.body",
                [(*astuple(span), now_seconds) for span in spans],
            )
            connection.execute(
                "DELETE FROM spans WHERE received_seconds < ?", (now_seconds - KEPT_SECONDS,)
            )
            connection.execute(
                "DELETE FROM spans WHERE number <= (SELECT max(number) FROM spans) - ?",
                (self._kept_spans,),
            )

        await self._database.write(insert)

    def trace(self, trace_id: str) -> list[ReceivedSpan]:
        """The spans of a trace, in the order of arrival."""
        rows = self._database.read(
            "SELECT trace_id, span_id, resource, scope, body FROM spans WHERE trace_id = ?"
            " ORDER BY number",
            (trace_id,),
        )
        return [ReceivedSpan(**dict(row)) for row in rows]
