"""The workspace's tables, and its resources: documents by collection, name and version."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from localazure.machinelearning.errors import not_found
from localazure.sqlite.query import Query, querying

MIGRATIONS = (
    """
    CREATE TABLE resource (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        collection TEXT NOT NULL,
        name TEXT NOT NULL,
        version TEXT NOT NULL,
        document TEXT NOT NULL,
        created_at REAL NOT NULL,
        modified_at REAL NOT NULL,
        UNIQUE (collection, name, version)
    );
    CREATE TABLE job (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        cluster TEXT NOT NULL,
        node_count INTEGER NOT NULL,
        status TEXT NOT NULL,
        attempt INTEGER NOT NULL DEFAULT 0,
        runner_failures INTEGER NOT NULL DEFAULT 0,
        stop_order TEXT,
        started_at REAL,
        ended_at REAL,
        error_code TEXT NOT NULL DEFAULT '',
        error_message TEXT NOT NULL DEFAULT ''
    );
    CREATE INDEX job_by_status ON job (status, number);
    CREATE TABLE node (
        cluster TEXT NOT NULL,
        number INTEGER NOT NULL,
        state TEXT NOT NULL,
        since REAL NOT NULL,
        job TEXT,
        PRIMARY KEY (cluster, number)
    ) WITHOUT ROWID;
    CREATE TABLE event (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
    """,
    """
    ALTER TABLE job ADD COLUMN kind TEXT NOT NULL DEFAULT 'Command';
    ALTER TABLE job ADD COLUMN parent TEXT;
    ALTER TABLE job ADD COLUMN step TEXT NOT NULL DEFAULT '';
    ALTER TABLE job ADD COLUMN fingerprint TEXT;
    CREATE INDEX job_by_parent ON job (parent, number);
    CREATE INDEX job_by_fingerprint ON job (fingerprint, number);
    """,
    """
    CREATE TABLE schedule (name TEXT PRIMARY KEY, next_at REAL) WITHOUT ROWID;
    CREATE INDEX schedule_by_time ON schedule (next_at);
    """,
    "DROP TABLE schedule;",
)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A stored document of a PUT; times are epoch seconds."""

    document: dict[str, Any]
    """The request body."""
    created_at: float
    modified_at: float

    @property
    def properties(self) -> dict[str, Any]:
        """`properties` of the body."""
        return self.document["properties"]


@dataclass(frozen=True, kw_only=True)
class Resource(Stored):
    """One resource of the workspace."""

    number: int
    """Increases with every creation."""
    collection: str
    name: str
    version: str
    """Empty for a resource without versions."""

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> Resource:
        """Read a row of the table."""
        return cls(**{**dict(row), "document": json.loads(row["document"])})


def get_resource(query: Query, collection: str, name: str, version: str = "") -> Resource | None:
    """One resource, or None."""
    rows = query(
        "SELECT * FROM resource WHERE collection = ? AND name = ? AND version = ?",
        (collection, name, version),
    )
    return Resource.from_row(rows[0]) if rows else None


def require_resource(
    query: Query, collection: str, name: str, version: str = "", *, label: str = ""
) -> Resource:
    """One resource; errors call it `label`, or else by its collection.

    Raises:
        ArmError: 404, the resource does not exist.
    """
    resource = get_resource(query, collection, name, version)
    if resource is None:
        raise not_found(label or collection, f"{name}:{version}" if version else name)
    return resource


def list_resources(query: Query, collection: str, name: str | None = None) -> list[Resource]:
    """All resources of a collection, or all versions of one name; newest first."""
    rows = query(
        "SELECT * FROM resource WHERE collection = ?1 AND "
        "(?2 IS NULL OR (name = ?2 AND version != '')) ORDER BY number DESC",
        (collection, name),
    )
    return [Resource.from_row(row) for row in rows]


def next_version(query: Query, collection: str, name: str) -> str:
    """The version after the greatest one of a name that is a number; 1 if there is none."""
    versions = [each.version for each in list_resources(query, collection, name)]
    return str(max((int(each) for each in versions if each.isdecimal()), default=0) + 1)


def put_resource(
    connection: sqlite3.Connection,
    collection: str,
    name: str,
    version: str,
    document: dict[str, Any],
    *,
    now: float,
) -> tuple[Resource, bool]:
    """Create or replace a resource, within a transaction; also return whether it is new."""
    is_new = get_resource(querying(connection), collection, name, version) is None
    cursor = connection.execute(
        """
        INSERT INTO resource (collection, name, version, document, created_at, modified_at)
        VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (collection, name, version)
        DO UPDATE SET document = excluded.document, modified_at = excluded.modified_at
        RETURNING *
        """,
        (collection, name, version, json.dumps(document), now, now),
    )
    return Resource.from_row(cursor.fetchone()), is_new


def delete_resource(
    connection: sqlite3.Connection, collection: str, name: str, version: str = ""
) -> bool:
    """Delete a resource, within a transaction; return whether it existed."""
    cursor = connection.execute(
        "DELETE FROM resource WHERE collection = ? AND name = ? AND version = ?",
        (collection, name, version),
    )
    return cursor.rowcount > 0
