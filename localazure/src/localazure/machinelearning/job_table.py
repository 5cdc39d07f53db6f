"""The run state of jobs, and their nodes: rows, and changes that publish events."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from localazure.machinelearning.events import enqueue, run_event
from localazure.machinelearning.runner_protocol import Outcome, Result, StopOrder
from localazure.machinelearning.scheduler import Node, release
from localazure.machinelearning.states import (
    ACTIVE,
    TERMINAL,
    JobStatus,
    NodeState,
    check_transition,
)
from localazure.machinelearning.store import Query, get_resource, querying

JOBS = "jobs"
DEFAULT_EXPERIMENT = "Default"


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """The run state of a job."""

    number: int
    name: str
    cluster: str
    node_count: int
    status: JobStatus
    attempt: int
    runner_failures: int
    stop_order: StopOrder | None
    started_at: float | None
    ended_at: float | None
    error_code: str
    error_message: str

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> JobRow:
        """Read a row of the table."""
        values: dict[str, Any] = dict(row)
        values["status"] = JobStatus(values["status"])
        order = values["stop_order"]
        values["stop_order"] = None if order is None else StopOrder.parse(order)
        return cls(**values)


def get_job(query: Query, name: str) -> JobRow | None:
    """One job, or None."""
    rows = query("SELECT * FROM job WHERE name = ?", (name,))
    return JobRow.from_row(rows[0]) if rows else None


def list_jobs(query: Query, statuses: Iterable[JobStatus]) -> list[JobRow]:
    """Jobs in any of these states, in the order of their submission."""
    wanted = tuple(statuses)
    marks = ", ".join("?" * len(wanted))
    rows = query(f"SELECT * FROM job WHERE status IN ({marks}) ORDER BY number", wanted)  # noqa: S608 - only marks
    return [JobRow.from_row(row) for row in rows]


def insert_job(
    connection: sqlite3.Connection, topic: str, name: str, cluster: str, node_count: int, now: float
) -> None:
    """Queue a new job; its document is a resource of the same transaction."""
    connection.execute(
        "INSERT INTO job (name, cluster, node_count, status) VALUES (?, ?, ?, ?)",
        (name, cluster, node_count, JobStatus.QUEUED),
    )
    _announce(connection, topic, name, JobStatus.QUEUED, now)


def set_status(
    connection: sqlite3.Connection, topic: str, name: str, status: JobStatus, now: float
) -> None:
    """Enter a state, and enqueue the event of it.

    Raises:
        IllegalTransitionError: the state cannot follow the present one.
    """
    job = get_job(querying(connection), name)
    if job is None or job.status is status:
        return
    check_transition(job.status, status)
    connection.execute("UPDATE job SET status = ? WHERE name = ?", (status, name))
    if status is JobStatus.PREPARING:
        connection.execute("UPDATE job SET attempt = attempt + 1 WHERE name = ?", (name,))
    if status is JobStatus.RUNNING:
        connection.execute(
            "UPDATE job SET started_at = coalesce(started_at, ?) WHERE name = ?", (now, name)
        )
    if status in TERMINAL:
        connection.execute("UPDATE job SET ended_at = ? WHERE name = ?", (now, name))
    _announce(connection, topic, name, status, now)


def finish_attempt(
    connection: sqlite3.Connection, topic: str, name: str, result: Result, now: float
) -> bool:
    """Store the outcome of an attempt and release its nodes. Returns whether the job has ended."""
    job = get_job(querying(connection), name)
    if job is None or job.status not in ACTIVE or job.attempt != result.attempt:
        return job is not None and job.status in TERMINAL
    replace_nodes(connection, release(tuple(list_nodes(querying(connection))), name, now))
    outcome = result.outcome
    if outcome is Outcome.PREEMPTED and job.status is JobStatus.CANCEL_REQUESTED:
        outcome = Outcome.CANCELED
    connection.execute(
        "UPDATE job SET stop_order = NULL, error_code = ?, error_message = ? WHERE name = ?",
        (result.code, result.message, name),
    )
    if outcome is Outcome.PREEMPTED:
        set_status(connection, topic, name, JobStatus.QUEUED, now)
        return False
    if job.status in {JobStatus.PREPARING, JobStatus.RUNNING}:
        set_status(connection, topic, name, JobStatus.FINALIZING, now)
    set_status(connection, topic, name, JobStatus(outcome), now)
    return True


def order_stop(connection: sqlite3.Connection, name: str, order: StopOrder) -> None:
    """Store an order to end the running attempt; later orders are ignored."""
    connection.execute(
        "UPDATE job SET stop_order = coalesce(stop_order, ?) WHERE name = ?",
        (order.to_json(), name),
    )


def list_nodes(query: Query, cluster: str | None = None) -> list[Node]:
    """All nodes, or those of one cluster, by number."""
    rows = query("SELECT * FROM node ORDER BY cluster, number", ())
    nodes = [
        Node(
            cluster=row["cluster"],
            number=row["number"],
            state=NodeState(row["state"]),
            since=row["since"],
            job=row["job"],
        )
        for row in rows
    ]
    return [node for node in nodes if cluster is None or node.cluster == cluster]


def replace_nodes(connection: sqlite3.Connection, nodes: Iterable[Node]) -> None:
    """Replace all nodes."""
    connection.execute("DELETE FROM node")
    connection.executemany(
        "INSERT INTO node (cluster, number, state, since, job) "
        "VALUES (:cluster, :number, :state, :since, :job)",
        [asdict(node) for node in nodes],
    )


def _announce(
    connection: sqlite3.Connection, topic: str, name: str, status: JobStatus, now: float
) -> None:
    resource = get_resource(querying(connection), JOBS, name)
    properties = {} if resource is None else resource.properties

    def event(entered: JobStatus | None) -> dict[str, Any]:
        return run_event(
            topic=topic,
            run=name,
            experiment=properties.get("experimentName") or DEFAULT_EXPERIMENT,
            tags=properties.get("tags") or {},
            properties=properties.get("properties") or {},
            status=entered,
            at=now,
        )

    enqueue(connection, event(status))
    if status is JobStatus.COMPLETED:
        enqueue(connection, event(None))
