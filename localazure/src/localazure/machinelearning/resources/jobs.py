"""Command jobs, sweeps and pipelines: submit, read, cancel and delete.

https://learn.microsoft.com/rest/api/azureml/jobs
"""

from __future__ import annotations

import re
from typing import Any

from aiohttp import web

from localazure.machinelearning.arm import (
    CONTROL_LOOP,
    WORKSPACE,
    WORKSPACE_PATH,
    add_reads,
    envelope,
    find_resource,
    is_listed,
    path_name,
    put_response,
    read_body,
)
from localazure.machinelearning.errors import ArmError, immutable, invalid
from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.jobs.named_outputs import output_uri
from localazure.machinelearning.jobs.runner_protocol import StopOrder
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobTransaction,
    delete_job,
    get_job,
    write_jobs,
)
from localazure.machinelearning.pipelines.submission import check_job
from localazure.machinelearning.resources.not_covered import not_covered
from localazure.machinelearning.store import Resource, get_resource, put_resource

routes = web.RouteTableDef()

_PATH = f"{WORKSPACE_PATH}/{JOBS}"
# The job's folder has the same name.
_JOB_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,254}$")
CHANGEABLE = frozenset({"displayName", "description", "tags", "properties", "isArchived"})
"""Properties that a second PUT of a job may change."""
FILLED_IN = frozenset({"status", "services", "experimentName", "outputs"})
"""Properties that GET fills in: a PUT of a GET's result may differ there."""


@routes.put(f"{_PATH}/{{name}}")
async def put_job(request: web.Request) -> web.Response:
    """Submit a job; for an existing name, change only the job's metadata."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    check_job_name(name)
    body = await read_body(request)

    def put(jobs: JobTransaction) -> tuple[Resource, bool]:
        existing = get_resource(jobs.query, JOBS, name)
        if existing is not None:
            document = _merge_metadata(existing, body)
            return put_resource(jobs.connection, JOBS, name, "", document, now=jobs.now)
        return submit(jobs, name, body), True

    resource, is_new = await write_jobs(workspace, put)
    request.app[CONTROL_LOOP].wake()
    return put_response(_document(request, resource), is_new=is_new)


@routes.post(f"{_PATH}/{{name}}/cancel")
async def cancel_job(request: web.Request) -> web.Response:
    """Cancel a job: immediately if it waits, with SIGTERM if it runs; ignore an ended job."""
    workspace = request.app[WORKSPACE]
    name = find_resource(request, JOBS, "job").name
    if await write_jobs(workspace, lambda jobs: jobs.request_cancel(name, StopOrder())):
        request.app[CONTROL_LOOP].attempts.deliver_stop(name)
    request.app[CONTROL_LOOP].wake()
    return web.Response(status=200)


@routes.delete(f"{_PATH}/{{name}}")
async def remove_job(request: web.Request) -> web.Response:
    """Delete a job that has ended, but not its outputs."""
    name = path_name(request)
    was_there = await request.app[WORKSPACE].database.write(
        lambda connection: delete_job(connection, name)
    )
    return web.Response(status=200 if was_there else 204)


def _is_shown(request: web.Request, resource: Resource) -> bool:
    """Whether a list includes the job: children are excluded, and the query filters.

    `tag` selects jobs that have the tag.

    Raises:
        ArmError: 501, the query asks for the jobs of schedules.
    """
    if "scheduleId" in request.query or request.query.get("scheduled") == "true":
        raise not_covered("schedules")
    job = get_job(request.app[WORKSPACE].database.read, resource.name)
    properties = resource.properties
    query = request.query
    return (
        is_listed(request, properties)
        and (job is None or job.parent is None)
        and ("tag" not in query or query["tag"] in (properties.get("tags") or {}))
    )


def submit(jobs: JobTransaction, name: str, body: dict[str, Any]) -> Resource:
    """Queue a new job.

    Raises:
        ArmError: the job could not run.
    """
    return jobs.insert(check_job(jobs.query, name, body["properties"]), body)


def check_job_name(name: str) -> None:
    """Refuse a name that is not valid for a job.

    Raises:
        ArmError: 400.
    """
    if not _JOB_NAME.match(name):
        raise invalid(f"job name {name!r}: only letters, digits, '-' and '_' are allowed")


def _merge_metadata(existing: Resource, body: dict[str, Any]) -> dict[str, Any]:
    """Return the job's document with the metadata of a second PUT.

    Raises:
        ArmError: 409, other properties than metadata differ.
    """
    old, new = existing.properties, body["properties"]
    ignored = CHANGEABLE | FILLED_IN
    differences = sorted(
        field
        for field in (set(old) | set(new)) - ignored
        if field in new and _bare(new[field]) != _bare(old.get(field))
    )
    if differences:
        raise immutable("job", existing.name, differences)
    changes = {field: new[field] for field in CHANGEABLE if field in new}
    return {**existing.document, "properties": {**old, **changes}}


def _bare(value: Any) -> Any:
    """A JSON value without nulls and empty objects, which serializers may add."""
    if isinstance(value, dict):
        entries = {key: _bare(entry) for key, entry in value.items()}
        return {key: entry for key, entry in entries.items() if entry is not None} or None
    return value


def _document(request: web.Request, resource: Resource) -> dict[str, Any]:
    workspace = request.app[WORKSPACE]
    job = get_job(workspace.database.read, resource.name)
    if job is None:
        raise ArmError(500, "InternalServerError", f"job {resource.name!r} has no run state")
    properties = resource.properties
    outputs = {
        key: {**entry, "uri": output_uri(resource.name, key, entry)}
        for key, entry in (properties.get("outputs") or {}).items()
    }
    if objective := properties.get("objective"):
        # The SDK sends the goal in lower case; Azure returns it capitalized.
        goal = str(objective.get("goal")).capitalize()
        properties = {**properties, "objective": {**objective, "goal": goal}}
    url = workspace.environment.azure_ml_url
    return envelope(
        workspace,
        resource,
        {
            "tags": {},
            "properties": {},
            "isArchived": False,
            **properties,
            "experimentName": properties.get("experimentName") or DEFAULT_EXPERIMENT,
            "outputs": outputs,
            "status": job.status.value,
            "services": {
                "Tracking": {"jobServiceType": "Tracking", "endpoint": url},
                "Studio": {
                    "jobServiceType": "Studio",
                    "endpoint": f"{url}/history/v1.0{workspace.id}/runs/{resource.name}/details",
                },
            },
        },
    )


add_reads(routes, JOBS, "job", _document, _is_shown)
