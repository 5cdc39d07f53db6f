"""Schedules in the tables, with a simulated clock."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.job_table import JOBS, JobTransaction, get_job
from localazure.machinelearning.schedules import (
    RESTART_SECONDS,
    delete_schedule,
    put_schedule,
    start_due_jobs,
    start_job,
)
from localazure.machinelearning.states import JobStatus
from localazure.machinelearning.store import get_resource
from localazure.sqlite.query import querying

WORKSPACE = (
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
)
NINE = datetime(2026, 8, 7, 9, tzinfo=UTC).timestamp()
HOUR = 3600.0
JOB = {
    "jobType": "Command",
    "command": "echo ${{inputs.at}}",
    "environmentId": "azureml:torch:1",
    "inputs": {"at": {"jobInputType": "literal", "value": "${{create_context.trigger_time}}"}},
}


class Schedules:
    """The tables, with a clock that the test sets."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.query = querying(connection)
        self.now = NINE

    def put(
        self, *, is_enabled: bool = True, job: dict[str, Any] | None = None, **trigger: Any
    ) -> None:
        properties = {
            "action": {"actionType": "CreateJob", "jobDefinition": job or JOB},
            "trigger": {"triggerType": "Cron", "expression": "0 * * * *", **trigger},
            "isEnabled": is_enabled,
        }
        put_schedule(self.connection, "hourly", {"properties": properties}, self.now)

    @property
    def transaction(self) -> JobTransaction:
        return JobTransaction(self.connection, "/workspace", self.now)

    def at(self, seconds: float) -> float | None:
        """Start the due jobs; the time and the returned next time are in seconds after nine."""
        self.now = NINE + seconds
        wake_at = start_due_jobs(self.transaction)
        return None if wake_at is None else wake_at - NINE

    @property
    def jobs(self) -> list[str]:
        rows = self.query("SELECT name FROM job ORDER BY number", ())
        return [row["name"].removeprefix("hourly-20260807T") for row in rows]

    def properties(self, job: str) -> dict[str, Any]:
        resource = get_resource(self.query, JOBS, f"hourly-20260807T{job}")
        assert resource is not None
        return resource.properties


@pytest.fixture
def schedules(connection: sqlite3.Connection) -> Schedules:
    return Schedules(connection)


def test_without_a_start_time_the_first_job_starts_at_once_and_the_next_at_its_time(
    schedules: Schedules,
) -> None:
    schedules.now += 5
    schedules.put()
    assert schedules.at(5) == HOUR
    assert schedules.at(5) == HOUR
    assert schedules.at(HOUR) == 2 * HOUR
    assert schedules.jobs == ["090005Z", "100000Z"]
    properties = schedules.properties("100000Z")
    assert properties["displayName"] == "hourly-20260807T100000Z"
    assert properties["properties"] == {"azureml.scheduleName": "hourly"}
    assert properties["inputs"]["at"]["value"] == "2026-08-07T10:00:00+00:00"


def test_a_missed_time_is_made_up_only_after_a_short_restart(
    schedules: Schedules,
) -> None:
    schedules.put(startTime="2022-07-10T10:00:00")
    assert schedules.at(HOUR + RESTART_SECONDS) == 2 * HOUR
    assert schedules.at(5 * HOUR + RESTART_SECONDS + 1) == 6 * HOUR
    assert schedules.jobs == ["100000Z"]


def test_a_schedule_that_cannot_be_read_stops_alone(schedules: Schedules) -> None:
    schedules.put(startTime="2026-08-07T08:30:00")
    schedules.connection.execute(
        "INSERT INTO schedule (name, next_at) VALUES ('without-document', ?)", (NINE,)
    )
    assert schedules.at(HOUR) == 2 * HOUR
    assert len(schedules.jobs) == 1
    stopped = schedules.query("SELECT next_at FROM schedule WHERE name = 'without-document'", ())
    assert stopped[0]["next_at"] is None


def test_a_disabled_schedule_starts_no_job_until_it_is_enabled(
    schedules: Schedules,
) -> None:
    schedules.put(startTime="2022-07-10T10:00:00")
    schedules.put(is_enabled=False, startTime="2022-07-10T10:00:00")
    assert schedules.at(2.5 * HOUR) is None
    schedules.put()  # an existing schedule starts no job immediately
    assert schedules.at(2.5 * HOUR) == 3 * HOUR
    assert schedules.jobs == []


def test_a_schedule_ends(schedules: Schedules) -> None:
    schedules.put(startTime="2026-08-07T09:30:00", endTime="2026-08-07T10:30:00")
    assert schedules.at(0) == HOUR
    assert schedules.at(HOUR) is None
    assert schedules.jobs == ["100000Z"]


def test_only_a_disabled_schedule_is_deleted(schedules: Schedules) -> None:
    schedules.put()
    with pytest.raises(ArmError, match="is enabled"):
        delete_schedule(schedules.connection, "hourly")
    schedules.put(is_enabled=False)
    assert delete_schedule(schedules.connection, "hourly")
    assert not delete_schedule(schedules.connection, "hourly")
    assert schedules.at(HOUR) is None


def test_a_source_job_gives_what_the_definition_lacks(schedules: Schedules) -> None:
    schedules.put()
    schedules.at(0)
    source = f"{WORKSPACE}/jobs/hourly-20260807T090000Z"
    schedules.put(job={"jobType": "Command", "sourceJobId": source, "experimentName": ""})
    schedules.at(HOUR)
    assert schedules.properties("100000Z")["command"] == "echo ${{inputs.at}}"
    with pytest.raises(ArmError, match="absent"):
        schedules.put(job={"jobType": "Command", "sourceJobId": f"{WORKSPACE}/jobs/absent"})


def test_a_job_that_can_no_longer_run_is_inserted_as_failed(schedules: Schedules) -> None:
    schedules.put()
    resource = get_resource(schedules.query, "schedules", "hourly")
    assert resource is not None
    resource.properties["action"]["jobDefinition"]["computeId"] = f"{WORKSPACE}/computes/deleted"
    name = start_job(schedules.transaction, resource, NINE)
    job = get_job(schedules.query, name)
    assert job is not None
    assert (job.status, job.error_code) == (JobStatus.FAILED, "NotFound")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"endTime": "2026-08-07T08:00:00"}, "has passed"),
        ({"job": {"jobType": "Spark"}}, "not covered"),
        ({"triggerType": "Event"}, "not covered"),
    ],
)
def test_what_is_wrong_is_refused(
    schedules: Schedules, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArmError, match=message):
        schedules.put(**fields)
