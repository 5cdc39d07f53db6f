"""The rows of jobs, and the events of their states."""

from __future__ import annotations

import json
import sqlite3

import pytest

from localazure.machinelearning.configuration import RunEvents
from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.events import RunTopic
from localazure.machinelearning.job_table import (
    JOBS,
    JobKind,
    NewJob,
    delete_job,
    get_job,
    insert_job,
    set_status,
)
from localazure.machinelearning.states import JobStatus
from localazure.machinelearning.store import get_resource, put_resource, querying

NOW = 1000.0
STRICT = RunTopic("/workspace", RunEvents.AS_AZURE)
UNTIL_RUNNING = (JobStatus.PREPARING, JobStatus.RUNNING)


def submit(connection: sqlite3.Connection, topic: RunTopic, name: str, parent: str | None) -> None:
    put_resource(connection, JOBS, name, "", {"properties": {}}, now=NOW)
    insert_job(connection, topic, NewJob(name=name, kind=JobKind.COMMAND, parent=parent), NOW)


def run(
    connection: sqlite3.Connection, topic: RunTopic, end: JobStatus, parent: str | None = None
) -> str:
    """A job that goes through its states to this end; its name."""
    name = f"job-{end}"
    submit(connection, topic, name, parent)
    before = JobStatus.CANCEL_REQUESTED if end is JobStatus.CANCELED else JobStatus.FINALIZING
    for status in (*UNTIL_RUNNING, before, end):
        set_status(connection, topic, name, status, NOW)
    return name


def told(connection: sqlite3.Connection) -> list[tuple[str, str | None]]:
    """Type and status of each event."""
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
def test_as_on_azure_only_two_ends_have_an_event(
    connection: sqlite3.Connection, end: JobStatus, expected: list[tuple[str, str | None]]
) -> None:
    run(connection, STRICT, end)
    assert told(connection) == expected


def test_every_state_has_an_event_where_that_is_configured(connection: sqlite3.Connection) -> None:
    run(connection, RunTopic("/workspace", RunEvents.EVERY_STATE), JobStatus.COMPLETED)
    states = ["Queued", "Preparing", "Running", "Finalizing", "Completed"]
    expected = [("RunStatusChanged", state) for state in states]
    assert told(connection) == [*expected, ("RunCompleted", None)]


def test_a_job_is_deleted_with_its_children_once_it_has_ended(
    connection: sqlite3.Connection,
) -> None:
    submit(connection, STRICT, "parent", None)
    child = run(connection, STRICT, JobStatus.COMPLETED, "parent")
    with pytest.raises(ArmError, match="job 'parent' is Queued: cancel it first"):
        delete_job(connection, "parent")
    set_status(connection, STRICT, "parent", JobStatus.CANCELED, NOW)
    assert delete_job(connection, "parent")
    assert not delete_job(connection, "parent")
    query = querying(connection)
    for name in ("parent", child):
        assert get_job(query, name) is None
        assert get_resource(query, JOBS, name) is None
