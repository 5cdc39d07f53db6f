"""The tables of online endpoints: endpoints, their deployments, and their requests by minute."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from localazure.machinelearning.serving.request_counts import MinuteCounts
from localazure.machinelearning.store import Stored
from localazure.sqlite.query import Query

MIGRATIONS = (
    """
    CREATE TABLE endpoint (
        name TEXT PRIMARY KEY COLLATE NOCASE,
        document TEXT NOT NULL,
        primary_key TEXT NOT NULL,
        secondary_key TEXT NOT NULL,
        created_at REAL NOT NULL,
        modified_at REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE deployment (
        endpoint TEXT NOT NULL COLLATE NOCASE,
        name TEXT NOT NULL COLLATE NOCASE,
        document TEXT NOT NULL,
        generation INTEGER NOT NULL,
        state TEXT NOT NULL,
        error_code TEXT NOT NULL DEFAULT '',
        error_message TEXT NOT NULL DEFAULT '',
        created_at REAL NOT NULL,
        modified_at REAL NOT NULL,
        PRIMARY KEY (endpoint, name)
    ) WITHOUT ROWID;
    CREATE TABLE request_minute (
        endpoint TEXT NOT NULL COLLATE NOCASE,
        deployment TEXT NOT NULL COLLATE NOCASE,
        minute INTEGER NOT NULL,
        counts TEXT NOT NULL,
        PRIMARY KEY (endpoint, deployment, minute)
    ) WITHOUT ROWID;
    """,
)

# Azure Monitor keeps metrics for 93 days.
# https://learn.microsoft.com/azure/azure-monitor/essentials/data-platform-metrics
RETENTION_SECONDS = 93 * 86_400


class DeploymentState(StrEnum):
    """The values of Azure ML's `DeploymentProvisioningState` that a deployment has here."""

    CREATING = "Creating"
    UPDATING = "Updating"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


CHANGING = frozenset({DeploymentState.CREATING, DeploymentState.UPDATING})


@dataclass(frozen=True, kw_only=True)
class Endpoint(Stored):
    """An online endpoint: the document of its PUT, and its keys."""

    name: str
    primary_key: str
    secondary_key: str


@dataclass(frozen=True, kw_only=True)
class Deployment(Stored):
    """A deployment: the document of its PUT, and its provisioning state."""

    endpoint: str
    name: str
    generation: int
    """The number of PUTs; each PUT starts new processes."""
    state: DeploymentState
    error_code: str
    error_message: str

    @property
    def instance_type(self) -> str:
        """The VM size."""
        return str(self.properties.get("instanceType") or "")

    @property
    def instance_count(self) -> int:
        """The number of processes: `sku.capacity`."""
        return int((self.document.get("sku") or {}).get("capacity") or 1)

    @property
    def key(self) -> tuple[str, str]:
        """The names of endpoint and deployment in lower case."""
        return self.endpoint.lower(), self.name.lower()


def get_endpoint(query: Query, name: str) -> Endpoint | None:
    """One endpoint, or None."""
    rows = query("SELECT * FROM endpoint WHERE name = ?", (name,))
    return _endpoint(rows[0]) if rows else None


def list_endpoints(query: Query) -> list[Endpoint]:
    """All endpoints, newest first."""
    return [_endpoint(row) for row in query("SELECT * FROM endpoint ORDER BY created_at DESC", ())]


def put_endpoint(
    connection: sqlite3.Connection, name: str, document: Mapping[str, Any], *, now: float
) -> Endpoint:
    """Create or replace an endpoint, within a transaction; an existing one keeps its keys."""
    cursor = connection.execute(
        """
        INSERT INTO endpoint VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (name) DO UPDATE SET
            document = excluded.document, modified_at = excluded.modified_at
        RETURNING *
        """,
        (name, json.dumps(document), _new_key(), _new_key(), now, now),
    )
    return _endpoint(cursor.fetchone())


def renew_key(connection: sqlite3.Connection, name: str, *, is_primary: bool) -> None:
    """Replace one of an endpoint's keys, within a transaction."""
    column = "primary_key" if is_primary else "secondary_key"
    connection.execute(f"UPDATE endpoint SET {column} = ? WHERE name = ?", (_new_key(), name))  # noqa: S608 - one of two literals


def _new_key() -> str:
    return secrets.token_urlsafe(24)


def delete_endpoint(connection: sqlite3.Connection, name: str) -> bool:
    """Delete an endpoint and its deployments, within a transaction; return if it existed."""
    connection.execute("DELETE FROM deployment WHERE endpoint = ?", (name,))
    return connection.execute("DELETE FROM endpoint WHERE name = ?", (name,)).rowcount > 0


def get_deployment(query: Query, endpoint: str, name: str) -> Deployment | None:
    """One deployment, or None."""
    rows = query("SELECT * FROM deployment WHERE endpoint = ? AND name = ?", (endpoint, name))
    return _deployment(rows[0]) if rows else None


def list_deployments(query: Query, endpoint: str | None = None) -> list[Deployment]:
    """The deployments of one endpoint or of all endpoints; oldest first."""
    rows = query(
        "SELECT * FROM deployment WHERE endpoint = coalesce(?, endpoint) ORDER BY created_at",
        (endpoint,),
    )
    return [_deployment(row) for row in rows]


def put_deployment(
    connection: sqlite3.Connection,
    endpoint: str,
    name: str,
    document: Mapping[str, Any],
    *,
    now: float,
) -> Deployment:
    """Create or replace a deployment, within a transaction; it is Creating or Updating."""
    cursor = connection.execute(
        """
        INSERT INTO deployment
            (endpoint, name, document, generation, state, created_at, modified_at)
        VALUES (?, ?, ?, 1, 'Creating', ?, ?)
        ON CONFLICT (endpoint, name) DO UPDATE SET
            document = excluded.document, generation = generation + 1, state = 'Updating',
            error_code = '', error_message = '', modified_at = excluded.modified_at
        RETURNING *
        """,
        (endpoint, name, json.dumps(document), now, now),
    )
    return _deployment(cursor.fetchone())


def finish_provisioning(
    connection: sqlite3.Connection,
    deployment: Deployment,
    *,
    error: tuple[str, str] | None,
    now: float,
) -> None:
    """Store the result of a generation unless there is a newer one, within a transaction.

    `error` is code and message, or None after success.
    """
    state = DeploymentState.SUCCEEDED if error is None else DeploymentState.FAILED
    which = (deployment.endpoint, deployment.name, deployment.generation)
    connection.execute(
        "UPDATE deployment SET state = ?, error_code = ?, error_message = ?, modified_at = ? "
        "WHERE endpoint = ? AND name = ? AND generation = ?",
        (state, *(error or ("", "")), now, *which),
    )


def delete_deployment(connection: sqlite3.Connection, endpoint: str, name: str) -> None:
    """Delete a deployment, within a transaction."""
    connection.execute("DELETE FROM deployment WHERE endpoint = ? AND name = ?", (endpoint, name))


def add_counts(
    connection: sqlite3.Connection,
    counts: Iterable[tuple[tuple[str, str, int], MinuteCounts]],
    *,
    now: float,
) -> None:
    """Add counts to their minutes, and delete expired minutes, within a transaction."""
    for (endpoint, deployment, minute), part in counts:
        merged = MinuteCounts()
        for row in connection.execute(
            "SELECT counts FROM request_minute "
            "WHERE endpoint = ? AND deployment = ? AND minute = ?",
            (endpoint, deployment, minute),
        ):
            merged.merge(MinuteCounts.from_document(json.loads(row["counts"])))
        merged.merge(part)
        connection.execute(
            "INSERT OR REPLACE INTO request_minute VALUES (?, ?, ?, ?)",
            (endpoint, deployment, minute, json.dumps(merged.to_document())),
        )
    connection.execute("DELETE FROM request_minute WHERE minute < ?", (now - RETENTION_SECONDS,))


def read_counts(
    query: Query, endpoint: str, *, first: float, last: float
) -> list[tuple[str, int, MinuteCounts]]:
    """Deployment, minute and counts of an endpoint's requests, oldest first.

    The minutes start at or after `first` and before `last`, both epoch seconds.
    """
    rows = query(
        "SELECT * FROM request_minute WHERE endpoint = ? AND minute >= ? AND minute < ? "
        "ORDER BY minute",
        (endpoint, first, last),
    )
    return [
        (row["deployment"], row["minute"], MinuteCounts.from_document(json.loads(row["counts"])))
        for row in rows
    ]


def _endpoint(row: sqlite3.Row) -> Endpoint:
    return Endpoint(**{**dict(row), "document": json.loads(row["document"])})


def _deployment(row: sqlite3.Row) -> Deployment:
    values: dict[str, Any] = dict(row)
    values |= {"document": json.loads(row["document"]), "state": DeploymentState(row["state"])}
    return Deployment(**values)
