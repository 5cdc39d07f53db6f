"""Rows of jobs, and the events of their states."""

from __future__ import annotations

import json
import sqlite3

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobTransaction,
    NewJob,
    delete_job,
    get_job,
)
from localazure.machinelearning.store import get_resource

NOW = 1000.0
UNTIL_RUNNING = (JobStatus.PREPARING, JobStatus.RUNNING)


@pytest.fixture
def jobs(connection: sqlite3.Connection) -> JobTransaction:
    return JobTransaction(connection, "/workspace", NOW)


def run(jobs: JobTransaction, end: JobStatus, parent: str | None = None) -> str:
    """Insert a job, move it through its states to this end, and return its name."""
    name = f"job-{end}"
    jobs.insert(NewJob(name=name, parent=parent), {"properties": {}})
    before = JobStatus.CANCEL_REQUESTED if end is JobStatus.CANCELED else JobStatus.FINALIZING
    for status in (*UNTIL_RUNNING, before, end):
        jobs.set_status(name, status)
    return name


def told(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    """The type and the status of each event."""
    events = [json.loads(row["body"]) for row in connection.execute("SELECT body FROM event")]
    return [
        (event["eventType"].rpartition(".")[2], event["data"].get("runStatus")) for event in events
    ]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (JobStatus.COMPLETED, [("RunCompleted", None)]),
        (JobStatus.FAILED, [("RunStatusChanged", "Failed")]),
        (JobStatus.CANCELED, []),
    ],
)
def test_only_completed_and_failed_jobs_have_an_event_and_ended_ones_stay_so(
    jobs: JobTransaction, end: JobStatus, expected: list[tuple[str, str | None]]
) -> None:
    name = run(jobs, end)
    with pytest.raises(RuntimeError, match=f"cannot go from {end} to Running"):
        jobs.set_status(name, JobStatus.RUNNING)
    assert told(jobs.connection) == expected


def test_a_job_is_deleted_with_its_children_once_it_has_ended(jobs: JobTransaction) -> None:
    jobs.insert(NewJob(name="parent"), {"properties": {}})
    child = run(jobs, JobStatus.COMPLETED, "parent")
    with pytest.raises(ArmError, match="job 'parent' is Queued: cancel it first"):
        delete_job(jobs.connection, "parent")
    jobs.set_status("parent", JobStatus.CANCELED)
    assert delete_job(jobs.connection, "parent")
    assert not delete_job(jobs.connection, "parent")
    for name in ("parent", child):
        assert get_job(jobs.query, name) is None
        assert get_resource(jobs.query, JOBS, name) is None
