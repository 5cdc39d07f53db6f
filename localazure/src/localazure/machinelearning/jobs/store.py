"""The run state of jobs and nodes: rows, and transactions that also enqueue events."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar

from localazure.machinelearning.compute.allocation import Node, NodeState, release
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.events import enqueue, model_registered, run_event
from localazure.machinelearning.jobs.named_outputs import register_outputs
from localazure.machinelearning.jobs.runner_protocol import Outcome, Result, StopOrder
from localazure.machinelearning.jobs.states import (
    ACTIVE,
    JOB_TRANSITIONS,
    TERMINAL,
    WAITING,
    JobStatus,
)
from localazure.machinelearning.store import Resource, delete_resource, get_resource, put_resource
from localazure.machinelearning.workspace import Workspace
from localazure.sqlite.query import Query, querying

JOBS = "jobs"

T = TypeVar("T")


class JobKind(StrEnum):
    """The covered values of Azure ML's `JobType`; a Spark job's row is that of a command job."""

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
    """Only command jobs have processes, a cluster and nodes; other jobs have children."""
    parent: str | None = None
    """The sweep or pipeline that the job belongs to."""
    step: str = ""
    """The job's key in its parent: a trial's number, or a step's name."""
    fingerprint: str | None = None
    """A hash of everything that a step's result depends on; None if it is never reused."""

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
    return [job for job in _list_by_status(query, statuses) if job.kind is JobKind.COMMAND]


def list_unfinished_parents(query: Query) -> list[JobRow]:
    """Sweeps and pipelines that have not ended, in the order of their submission."""
    return [
        job for job in _list_by_status(query, WAITING | ACTIVE) if job.kind is not JobKind.COMMAND
    ]


def _list_by_status(query: Query, statuses: Iterable[JobStatus]) -> list[JobRow]:
    values = tuple(statuses)
    marks = ", ".join("?" * len(values))
    rows = query(f"SELECT * FROM job WHERE status IN ({marks}) ORDER BY number", values)  # noqa: S608 - only marks
    return [JobRow.from_row(row) for row in rows]


def list_children(query: Query, parent: str) -> list[JobRow]:
    """The trials or steps of a job, in the order of their submission."""
    rows = query("SELECT * FROM job WHERE parent = ? ORDER BY number", (parent,))
    return [JobRow.from_row(row) for row in rows]


def root_of(query: Query, job: JobRow) -> JobRow:
    """The submitted job that a job is part of; a submitted job is its own root."""
    while job.parent is not None and (parent := get_job(query, job.parent)) is not None:
        job = parent
    return job


def find_reusable(query: Query, fingerprint: str) -> JobRow | None:
    """The newest completed step with the fingerprint."""
    rows = query(
        "SELECT * FROM job WHERE fingerprint = ? AND status = ? ORDER BY number DESC LIMIT 1",
        (fingerprint, JobStatus.COMPLETED),
    )
    return JobRow.from_row(rows[0]) if rows else None


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job to insert; the same transaction inserts its document as a resource."""

    name: str
    kind: JobKind = JobKind.COMMAND
    cluster: str = ""
    node_count: int = 0
    """0 for a sweep or a pipeline."""
    parent: str | None = None
    step: str = ""
    fingerprint: str | None = None


class JobTransaction:
    """Changes jobs and nodes in one transaction, and enqueues the events of these changes.

    `workspace` is its ARM id, also the topic of the events; `now` is in epoch seconds.
    """

    def __init__(self, connection: sqlite3.Connection, workspace: str, now: float) -> None:
        self.connection = connection
        self.query = querying(connection)
        self.now = now
        self.workspace = workspace

    def insert(
        self, job: NewJob, document: dict[str, Any], status: JobStatus = JobStatus.QUEUED
    ) -> Resource:
        """Insert a new job: usually Queued, but Completed for a reused step."""
        resource, _ = put_resource(self.connection, JOBS, job.name, "", document, now=self.now)
        ended_at = self.now if status in TERMINAL else None
        self.connection.execute(
            "INSERT INTO job (name, cluster, node_count, status, kind, parent, step, fingerprint,"
            " started_at, ended_at) VALUES (:name, :cluster, :node_count, :status, :kind, :parent,"
            " :step, :fingerprint, :ended_at, :ended_at)",
            {**asdict(job), "status": status, "ended_at": ended_at},
        )
        self._on_entered(job.name, status)
        return resource

    def request_cancel(self, name: str, order: StopOrder) -> bool:
        """Cancel a job: immediately if it waits, else by a stop order; a parent by its children.

        Returns:
            Whether the caller must deliver a stop order to a runner.
        """
        job = get_job(self.query, name)
        if job is None:
            return False
        if job.status in WAITING:
            self.set_error(name, order.code, order.message)
            self.set_status(name, JobStatus.CANCELED)
        elif job.status in {JobStatus.PREPARING, JobStatus.RUNNING}:
            self.set_status(name, JobStatus.CANCEL_REQUESTED)
            if job.kind is JobKind.COMMAND:
                self.order_stop(name, order)
                return True
            self.set_error(name, order.code, order.message)
        return False

    def set_error(self, name: str, code: str, message: str) -> None:
        """Store the error of a job."""
        self._update(name, "error_code = ?, error_message = ?", code, message)

    def set_status(self, name: str, status: JobStatus) -> None:
        """Enter a state, and enqueue its event if it has one.

        Raises:
            RuntimeError: the state cannot follow the current one: a defect of localazure.
        """
        job = get_job(self.query, name)
        if job is None or job.status is status:
            return
        if status not in JOB_TRANSITIONS[job.status]:
            raise RuntimeError(f"job {name!r} cannot go from {job.status} to {status}")
        self._update(name, "status = ?", status)
        if status is JobStatus.PREPARING:
            self._update(name, "attempt = attempt + 1")
        if status is JobStatus.RUNNING:
            self._update(name, "started_at = coalesce(started_at, ?)", self.now)
        if status in TERMINAL:
            self._update(name, "ended_at = ?", self.now)
        self._on_entered(name, status)

    def finish_attempt(self, name: str, result: Result) -> bool:
        """Store an attempt's outcome, release its nodes, and return whether the job has ended."""
        job = get_job(self.query, name)
        if job is None or job.status not in ACTIVE or job.attempt != result.attempt:
            return job is not None and job.status in TERMINAL
        self.replace_nodes(release(tuple(list_nodes(self.query)), name, self.now))
        outcome = result.outcome
        if outcome is Outcome.PREEMPTED and job.status is JobStatus.CANCEL_REQUESTED:
            outcome = Outcome.CANCELED
        self._update(name, "stop_order = NULL")
        self.set_error(name, result.code, result.message)
        if outcome is Outcome.PREEMPTED:
            self.set_status(name, JobStatus.QUEUED)
            return False
        if job.status in {JobStatus.PREPARING, JobStatus.RUNNING}:
            self.set_status(name, JobStatus.FINALIZING)
        self.set_status(name, JobStatus(outcome))
        return True

    def order_stop(self, name: str, order: StopOrder) -> None:
        """Store an order to end the running attempt; later orders are ignored."""
        self._update(name, "stop_order = coalesce(stop_order, ?)", order.to_json())

    def count_runner_failure(self, name: str) -> None:
        """Count a crash of the job's runner."""
        self._update(name, "runner_failures = runner_failures + 1")

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Replace all nodes."""
        self.connection.execute("DELETE FROM node")
        self.connection.executemany(
            "INSERT INTO node (cluster, number, state, since, job) "
            "VALUES (:cluster, :number, :state, :since, :job)",
            [asdict(node) for node in nodes],
        )

    def _update(self, name: str, changes: str, *values: object) -> None:
        self.connection.execute(f"UPDATE job SET {changes} WHERE name = ?", (*values, name))  # noqa: S608 - columns from above

    def _on_entered(self, name: str, status: JobStatus) -> None:
        """Enqueue the event of a state, and register the outputs of a completed job.

        As on Azure, only Failed and Completed have an event.
        """
        if status not in {JobStatus.FAILED, JobStatus.COMPLETED}:
            return
        job = get_resource(self.query, JOBS, name)
        if job is None:
            return
        event_status = status if status is JobStatus.FAILED else None
        enqueue(self.connection, run_event(self.workspace, job, event_status, self.now))
        if status is JobStatus.COMPLETED:
            for asset in register_outputs(self.connection, job, self.now):
                if asset.collection == "models":
                    enqueue(self.connection, model_registered(self.workspace, asset))


async def write_jobs(workspace: Workspace, change: Callable[[JobTransaction], T]) -> T:
    """Apply a change in one transaction, and have its events published."""
    return await workspace.write(
        lambda connection: change(JobTransaction(connection, workspace.id, workspace.clock()))
    )


def delete_job(connection: sqlite3.Connection, name: str) -> bool:
    """Delete a job that has ended, with its children. Return whether it existed.

    Raises:
        ArmError: 409, the job has not ended.
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


def list_nodes(query: Query, cluster: str | None = None) -> list[Node]:
    """All nodes, or the nodes of one cluster, by number."""
    nodes: list[Node] = []
    for row in query("SELECT * FROM node ORDER BY cluster, number", ()):
        values: dict[str, Any] = {**row, "state": NodeState(row["state"])}
        nodes.append(Node(**values))
    return [node for node in nodes if cluster is None or node.cluster == cluster]
