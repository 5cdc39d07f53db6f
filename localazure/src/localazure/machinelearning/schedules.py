"""Schedules: documents, next times, and the jobs that they start.

A job is inserted in the transaction that moves the schedule to its next time, with a name derived
from the schedule and the time: kill -9 neither repeats nor loses it. A time that passes while
localazure is down is skipped if it is more than `RESTART_SECONDS` ago at the next start.

https://learn.microsoft.com/azure/machine-learning/how-to-schedule-pipeline-job
"""

from __future__ import annotations

import json
import logging
import sqlite3
from datetime import UTC, datetime
from functools import partial
from typing import Any

from localazure.machinelearning.addresses import child_of_workspace
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.isolation import failure_of
from localazure.machinelearning.job_placement import check_job
from localazure.machinelearning.job_table import JOBS, JobKind, JobTransaction, NewJob, get_job
from localazure.machinelearning.schedule_triggers import parse_trigger
from localazure.machinelearning.states import JobStatus
from localazure.machinelearning.store import (
    Resource,
    delete_resource,
    get_resource,
    put_resource,
    require_resource,
)
from localazure.sqlite.query import Query, querying

SCHEDULES = "schedules"
SCHEDULE_NAME = "azureml.scheduleName"
"""The property of a job that names its schedule."""
RESTART_SECONDS = 60.0
"""How late a job may start: about the duration of a restart of localazure."""

_CREATE_JOB = "CreateJob"

logger = logging.getLogger(__name__)


def put_schedule(
    connection: sqlite3.Connection, name: str, document: dict[str, Any], now: float
) -> tuple[Resource, bool]:
    """Create or replace a schedule. Return the schedule, and whether it is new.

    A new schedule without a start time starts its first job immediately, as on Azure. A schedule
    whose start time has passed starts its first job at the next time.

    Raises:
        ArmError: 400, a field is wrong or the job could not run; 404, a reference does not exist.
    """
    query = querying(connection)
    existing = get_resource(query, SCHEDULES, name)
    created_at = now if existing is None else existing.created_at
    properties: dict[str, Any] = document["properties"]
    trigger_document: dict[str, Any] = properties.get("trigger") or {}
    trigger = parse_trigger(trigger_document, _moment(created_at))
    if existing is None and trigger.end is not None and trigger.end <= _moment(now):
        raise invalid(f"endTime {trigger_document['endTime']!r} has passed")
    action = {**(properties.get("action") or {})}
    if action.get("actionType") != _CREATE_JOB:
        raise invalid(f"actionType {action.get('actionType')!r} is not covered; use {_CREATE_JOB}")
    action["jobDefinition"] = _definition(query, action.get("jobDefinition") or {})
    check_job(query, name, _job_properties(name, action, now))
    is_enabled = properties.get("isEnabled") is not False
    kept = {**properties, "action": action, "isEnabled": is_enabled}
    stored = {**document, "properties": kept}
    resource, is_new = put_resource(connection, SCHEDULES, name, "", stored, now=now)
    next_at = None
    if is_enabled:
        is_immediate = is_new and trigger.start is None
        next_at = now if is_immediate else _timestamp(trigger.next_after(_moment(now)))
    connection.execute(
        "INSERT INTO schedule (name, next_at) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET next_at = excluded.next_at",
        (name, next_at),
    )
    return resource, is_new


def delete_schedule(connection: sqlite3.Connection, name: str) -> bool:
    """Delete a schedule, but not its jobs. Return whether it existed.

    Raises:
        ArmError: 400, the schedule is enabled.
    """
    resource = get_resource(querying(connection), SCHEDULES, name)
    if resource is None:
        return False
    if resource.properties["isEnabled"]:
        raise invalid(f"schedule {name!r} is enabled; disable it, then delete it")
    connection.execute("DELETE FROM schedule WHERE name = ?", (name,))
    return delete_resource(connection, SCHEDULES, name)


def start_due_jobs(jobs: JobTransaction) -> float | None:
    """Start the jobs that are due. Return the earliest next time of all schedules.

    A schedule that raises an exception stops; the others continue.
    """
    for row in jobs.query(
        "SELECT * FROM schedule WHERE next_at <= ? ORDER BY next_at", (jobs.now,)
    ):
        work = partial(_start_due_job, jobs, row["name"], row["next_at"])
        if (error := failure_of(work, jobs.connection)) is not None:
            logger.error("schedule %s stops", row["name"], exc_info=error)
            _set_next(jobs.connection, row["name"], None)
    return jobs.query("SELECT min(next_at) AS next_at FROM schedule", ())[0]["next_at"]


def _start_due_job(jobs: JobTransaction, name: str, at: float) -> None:
    resource = get_resource(jobs.query, SCHEDULES, name)
    if resource is None:
        raise RuntimeError(f"schedule {name} has a time and no document")
    if jobs.now - at <= RESTART_SECONDS:
        start_job(jobs, resource, at)
    else:
        logger.warning("schedule %s: a time passed while localazure was down", name)
    trigger = parse_trigger(resource.properties["trigger"], _moment(resource.created_at))
    _set_next(jobs.connection, name, _timestamp(trigger.next_after(_moment(jobs.now))))


def _set_next(connection: sqlite3.Connection, name: str, at: float | None) -> None:
    connection.execute("UPDATE schedule SET next_at = ? WHERE name = ?", (at, name))


def start_job(jobs: JobTransaction, schedule: Resource, at: float) -> str:
    """Insert the job of a schedule for one time, unless it exists. Return its name.

    A job that can no longer run (its cluster was deleted, for example) is inserted as Failed.
    """
    name = job_name(schedule.name, at)
    if get_job(jobs.query, name) is not None:
        return name
    properties = _job_properties(schedule.name, schedule.properties["action"], at)
    document = {"properties": properties}
    try:
        jobs.insert(check_job(jobs.query, name, properties), document)
    except ArmError as error:
        logger.warning("schedule %s: %s", schedule.name, error.message)
        job = NewJob(name=name, kind=JobKind(properties["jobType"]))
        jobs.insert(job, document, JobStatus.FAILED)
        jobs.set_error(name, error.code, error.message)
    return name


def job_name(schedule: str, at: float) -> str:
    """The name of a schedule's job, as displayed on Azure: `<schedule>-20210101T060000Z`."""
    return f"{schedule.replace('.', '_')}-{_moment(at):%Y%m%dT%H%M%SZ}"


def _definition(query: Query, definition: dict[str, Any]) -> dict[str, Any]:
    """A job's definition; missing fields come from its source job, if it names one.

    Raises:
        ArmError: 400 or 404, the source is not a job, or does not exist.
    """
    source = definition.get("sourceJobId")
    if not source:
        return definition
    job = child_of_workspace(source).removeprefix(f"/{JOBS}/")
    resource = require_resource(query, JOBS, job, called="job")
    given = {key: value for key, value in definition.items() if value not in (None, "", {})}
    merged = {**resource.properties, **given}
    # Drop the output paths that belong to the source job; the new job has its own.
    outputs = {
        key: {field: value for field, value in entry.items() if field != "uri" or job not in value}
        for key, entry in (merged.get("outputs") or {}).items()
    }
    return {**merged, "outputs": outputs}


def _job_properties(schedule: str, action: dict[str, Any], at: float) -> dict[str, Any]:
    """The properties of the job that a schedule starts at a time."""
    name = job_name(schedule, at)
    definition = {
        key: value for key, value in action["jobDefinition"].items() if key != "sourceJobId"
    }
    names = {"${{name}}": name, "${{create_context.trigger_time}}": _moment(at).isoformat()}
    inputs = json.dumps(definition.get("inputs") or {})
    for expression, value in names.items():
        inputs = inputs.replace(expression, value)
    return {
        **definition,
        "inputs": json.loads(inputs),
        "displayName": name,
        "isArchived": False,
        "properties": {**(definition.get("properties") or {}), SCHEDULE_NAME: schedule},
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def _timestamp(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
