"""The run state of jobs, and their nodes: rows, and changes that publish events."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from localazure.machinelearning.configuration import RunEvents
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.events import RunTopic, enqueue, run_event
from localazure.machinelearning.runner_protocol import Outcome, Result, StopOrder
from localazure.machinelearning.scheduler import Node, release
from localazure.machinelearning.states import (
    ACTIVE,
    TERMINAL,
    WAITING,
    JobStatus,
    NodeState,
    check_transition,
)
from localazure.machinelearning.store import Query, delete_resource, get_resource, querying

JOBS = "jobs"
DEFAULT_EXPERIMENT = "Default"


class JobKind(StrEnum):
    """`JobType` of Azure ML, as far as it is covered."""

    COMMAND = "Command"
    SWEEP = "Sweep"
    PIPELINE = "Pipeline"


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
    kind: JobKind = JobKind.COMMAND
    """Only command jobs have processes, and so a cluster and nodes; others have children."""
    parent: str | None = None
    """The sweep or pipeline that the job belongs to."""
    step: str = ""
    """Its place in the parent: a trial's number, or the name of a step."""
    fingerprint: str | None = None
    """A fingerprint of all that a step's result depends on, where it may be reused."""

    @classmethod
    def from_row(cls, row: sqlite3.Row) -> JobRow:
        """Read a row of the table."""
        values: dict[str, Any] = dict(row)
        values["status"] = JobStatus(values["status"])
        values["kind"] = JobKind(values["kind"])
        order = values["stop_order"]
        values["stop_order"] = None if order is None else StopOrder.parse(order)
        return cls(**values)


def get_job(query: Query, name: str) -> JobRow | None:
    """One job, or None."""
    rows = query("SELECT * FROM job WHERE name = ?", (name,))
    return JobRow.from_row(rows[0]) if rows else None


def list_jobs(query: Query, statuses: Iterable[JobStatus]) -> list[JobRow]:
    """Command jobs in any of these states, in the order of their submission."""
    wanted = tuple(statuses)
    marks = ", ".join("?" * len(wanted))
    rows = query(
        f"SELECT * FROM job WHERE status IN ({marks}) AND kind = ? ORDER BY number",  # noqa: S608 - only marks
        (*wanted, JobKind.COMMAND),
    )
    return [JobRow.from_row(row) for row in rows]


def list_unfinished_parents(query: Query) -> list[JobRow]:
    """Sweeps and pipelines that have not ended, in the order of their submission."""
    wanted = (*WAITING, *ACTIVE)
    marks = ", ".join("?" * len(wanted))
    rows = query(
        f"SELECT * FROM job WHERE status IN ({marks}) AND kind != ? ORDER BY number",  # noqa: S608 - only marks
        (*wanted, JobKind.COMMAND),
    )
    return [JobRow.from_row(row) for row in rows]


def list_children(query: Query, parent: str) -> list[JobRow]:
    """The trials or steps of a job, in the order of their submission."""
    rows = query("SELECT * FROM job WHERE parent = ? ORDER BY number", (parent,))
    return [JobRow.from_row(row) for row in rows]


def list_names_of_children(query: Query) -> set[str]:
    """Names of all jobs that belong to another one."""
    return {row["name"] for row in query("SELECT name FROM job WHERE parent IS NOT NULL", ())}


def root_of(query: Query, job: JobRow) -> JobRow:
    """The job that was submitted, of which this one is a part."""
    while job.parent is not None and (parent := get_job(query, job.parent)) is not None:
        job = parent
    return job


def find_reusable(query: Query, fingerprint: str) -> JobRow | None:
    """The newest completed step with that fingerprint."""
    rows = query(
        "SELECT * FROM job WHERE fingerprint = ? AND status = ? ORDER BY number DESC LIMIT 1",
        (fingerprint, JobStatus.COMPLETED),
    )
    return JobRow.from_row(rows[0]) if rows else None


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to insert; its document is a resource of the same transaction."""

    name: str
    kind: JobKind = JobKind.COMMAND
    cluster: str = ""
    node_count: int = 0
    parent: str | None = None
    step: str = ""
    fingerprint: str | None = None


def insert_job(
    connection: sqlite3.Connection,
    topic: RunTopic,
    job: NewJob,
    now: float,
    *,
    status: JobStatus = JobStatus.QUEUED,
) -> None:
    """Queue a new job; a step that is reused begins as Completed."""
    connection.execute(
        "INSERT INTO job (name, cluster, node_count, status, kind, parent, step, fingerprint) "
        "VALUES (:name, :cluster, :node_count, :status, :kind, :parent, :step, :fingerprint)",
        {**asdict(job), "status": status},
    )
    if status in TERMINAL:
        connection.execute(
            "UPDATE job SET started_at = ?, ended_at = ? WHERE name = ?", (now, now, job.name)
        )
    _announce(connection, topic, job.name, status, now)


def request_cancel(
    connection: sqlite3.Connection, topic: RunTopic, name: str, order: StopOrder, now: float
) -> bool:
    """Cancel a job: at once if it waits, else by a stop order or, of a parent, by its children.

    Returns:
        Whether a runner has to be told of a stop order.
    """
    job = get_job(querying(connection), name)
    if job is None:
        return False
    if job.status in WAITING:
        set_error(connection, name, order.code, order.message)
        set_status(connection, topic, name, JobStatus.CANCELED, now)
    elif job.status in {JobStatus.PREPARING, JobStatus.RUNNING}:
        set_status(connection, topic, name, JobStatus.CANCEL_REQUESTED, now)
        if job.kind is JobKind.COMMAND:
            order_stop(connection, name, order)
            return True
        set_error(connection, name, order.code, order.message)
    return False


def delete_job(connection: sqlite3.Connection, name: str) -> bool:
    """Delete a job that has ended, with its children. Returns whether it was there.

    Raises:
        ArmError: 409, it has not ended.
    """
    job = get_job(querying(connection), name)
    if job is None:
        return False
    if job.status not in TERMINAL:
        raise ArmError(409, "Conflict", f"job {name!r} is {job.status}: cancel it first")
    for child in list_children(querying(connection), name):
        delete_job(connection, child.name)
    connection.execute("DELETE FROM job WHERE name = ?", (name,))
    return delete_resource(connection, JOBS, name)


def set_error(connection: sqlite3.Connection, name: str, code: str, message: str) -> None:
    """Store why a job ends as it does."""
    connection.execute(
        "UPDATE job SET error_code = ?, error_message = ? WHERE name = ?", (code, message, name)
    )


def set_status(
    connection: sqlite3.Connection, topic: RunTopic, name: str, status: JobStatus, now: float
) -> None:
    """Enter a state, and enqueue its event if it has one.

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
    connection: sqlite3.Connection, topic: RunTopic, name: str, result: Result, now: float
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
    connection: sqlite3.Connection, topic: RunTopic, name: str, status: JobStatus, now: float
) -> None:
    """Put the events of a state into the outbox."""
    resource = get_resource(querying(connection), JOBS, name)
    properties = {} if resource is None else resource.properties

    def event(entered: JobStatus | None) -> dict[str, Any]:
        return run_event(
            topic=topic.id,
            run=name,
            experiment=properties.get("experimentName") or DEFAULT_EXPERIMENT,
            tags=properties.get("tags") or {},
            properties=properties.get("properties") or {},
            status=entered,
            at=now,
        )

    if status is JobStatus.FAILED or topic.events is RunEvents.EVERY_STATE:
        enqueue(connection, event(status))
    if status is JobStatus.COMPLETED:
        enqueue(connection, event(None))
