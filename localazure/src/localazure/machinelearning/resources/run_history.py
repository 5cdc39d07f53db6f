"""Run history: runs in the form that the SDK's `jobs` operations read.

`jobs.stream` polls details with URLs of the growing logs; `jobs.download` reads the locations of
outputs; `jobs.update` and `jobs.archive` patch a run; `jobs.list(parent_job_name=…)` lists
children. The history service has no published specification; responses have the fields that the
SDK reads.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import (
    WORKSPACE,
    WORKSPACE_PATH,
    listing,
    path_name,
    read_object,
    timestamp,
)
from localazure.machinelearning.configuration import ARTIFACT_DATASTORE
from localazure.machinelearning.errors import not_found
from localazure.machinelearning.events import DEFAULT_EXPERIMENT
from localazure.machinelearning.jobs.folder import ENVIRONMENT_LOG
from localazure.machinelearning.jobs.processes import log_names
from localazure.machinelearning.jobs.resolution import (
    distribution_of,
    node_count,
    output_uri,
    tensorflow_tasks,
)
from localazure.machinelearning.jobs.spec import artifacts_of
from localazure.machinelearning.jobs.store import (
    JOBS,
    JobKind,
    JobRow,
    get_job,
    list_children,
    root_of,
)
from localazure.machinelearning.store import Resource, get_resource, put_resource
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import LOOPBACK
from localazure.sqlite.query import Query, querying
from localazure.storage_client.shared_access import service_sas

routes = web.RouteTableDef()

_DATA_TYPES = {"uri_file", "uri_folder", "mltable"}
LOG_URL_LIFETIME = timedelta(hours=8)
_PATH = f"/history/v1.0{WORKSPACE_PATH}"


@routes.get(f"{_PATH}/runs/{{name}}/details")
async def get_run_details(request: web.Request) -> web.Response:
    """Return the state, the error and the log URLs of a run."""
    workspace = request.app[WORKSPACE]
    details = _details(workspace, *_find(workspace.database.read, path_name(request)))
    return web.json_response(details)


@routes.get(f"{_PATH}/runs/{{name}}")
async def get_run(request: web.Request) -> web.Response:
    """Return the state and the error of a run."""
    workspace = request.app[WORKSPACE]
    details = _details(workspace, *_find(workspace.database.read, path_name(request)))
    return web.json_response({**details, "logFiles": {}})


@routes.get(f"{_PATH}/runs/{{name}}/children")
async def list_children_of_run(request: web.Request) -> web.Response:
    """List the trials of a sweep or the steps of a pipeline, in the order of submission."""
    workspace, query = request.app[WORKSPACE], request.app[WORKSPACE].database.read
    parent, _ = _find(query, path_name(request))
    children = [_find(query, job.name) for job in list_children(query, parent.name)]
    return listing(request, [_run(workspace, *child) for child in children])


@routes.post(f"{_PATH}/rundata")
async def get_run_data(request: web.Request) -> web.Response:
    """Return a run with its outputs, whose ids `batchGetResolvedUris` resolves."""
    workspace = request.app[WORKSPACE]
    body = await read_object(request)
    resource, job = _find(workspace.database.read, str(body.get("runId")))
    outputs: dict[str, dict[str, str]] = {}
    for output, entry in (resource.properties.get("outputs") or {}).items():
        kind = entry.get("jobOutputType")
        outputs[output] = {
            "assetId": output_uri(resource.name, output, entry),
            "type": kind if kind in _DATA_TYPES else "uri_folder",
        }
    run = {**_run(workspace, resource, job), "outputs": outputs}
    return web.json_response({"runMetadata": run, "runDefinition": {}, "jobSpecification": {}})


@routes.post(f"/data/v1.0{WORKSPACE_PATH}/dataversion/batchGetResolvedUris")
async def resolve_output_uris(request: web.Request) -> web.Response:
    """Resolve ids of outputs to URIs; here, id and URI are equal."""
    body = await read_object(request)
    uris: list[str] = body.get("values") or []
    return web.json_response({"values": {uri: {"uri": uri, "type": "UriFolder"} for uri in uris}})


@routes.patch(f"{_PATH}/experiments/{{experiment}}/runs/{{name}}")
async def patch_run(request: web.Request) -> web.Response:
    """Change a job's metadata: tags and properties are merged; `hidden` archives it."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    changes = await read_object(request)

    def patch(connection: sqlite3.Connection) -> None:
        resource, _ = _find(querying(connection), name)
        properties = dict(resource.properties)
        for field in ("displayName", "description"):
            if changes.get(field) is not None:
                properties[field] = changes[field]
        for field in ("tags", "properties"):
            if changes.get(field) is not None:
                properties[field] = {**(properties.get(field) or {}), **changes[field]}
        if changes.get("hidden") is not None:
            properties["isArchived"] = bool(changes["hidden"])
        document = {**resource.document, "properties": properties}
        put_resource(connection, JOBS, name, "", document, now=workspace.clock())

    await workspace.database.write(patch)
    return web.json_response(_run(workspace, *_find(workspace.database.read, name)))


def _find(query: Query, name: str) -> tuple[Resource, JobRow]:
    resource, job = get_resource(query, JOBS, name), get_job(query, name)
    if resource is None or job is None:
        raise not_found("run", name)
    return resource, job


def _details(workspace: Workspace, resource: Resource, job: JobRow) -> dict[str, Any]:
    properties = resource.properties
    has_logs = job.started_at is not None and job.kind is JobKind.COMMAND
    details: dict[str, Any] = {
        "runId": job.name,
        "rootRunId": root_of(workspace.database.read, job).name,
        "target": job.cluster,
        "status": job.status.value,
        "createdTimeUtc": timestamp(resource.created_at),
        "startTimeUtc": None if job.started_at is None else timestamp(job.started_at),
        "endTimeUtc": None if job.ended_at is None else timestamp(job.ended_at),
        "services": {},
        "properties": properties.get("properties") or {},
        "tags": properties.get("tags") or {},
        "experimentName": properties.get("experimentName") or DEFAULT_EXPERIMENT,
        "logFiles": _log_urls(workspace, resource) if has_logs else {},
        "warnings": [],
    }
    if job.error_code:
        # The SDK prints this message when it raises JobException.
        details["error"] = {"error": {"code": job.error_code, "message": job.error_message}}
    return details


def _run(workspace: Workspace, resource: Resource, job: JobRow) -> dict[str, Any]:
    """The fields that `jobs.list` reads from a child run."""
    properties = resource.properties
    details = _details(workspace, resource, job)
    return {
        **{key: value for key, value in details.items() if key not in {"logFiles", "warnings"}},
        "parentRunId": job.parent,
        "runType": job.kind.value,
        "displayName": properties.get("displayName") or resource.name,
        "description": properties.get("description"),
        "experimentId": details["experimentName"],
        "createdUtc": details["createdTimeUtc"],
        "hidden": bool(properties.get("isArchived")),
    }


def _log_urls(workspace: Workspace, resource: Resource) -> dict[str, str]:
    properties = resource.properties
    per_node = (properties.get("distribution") or {}).get("processCountPerInstance") or 1
    ranks = len(tensorflow_tasks(properties)) or node_count(properties) * per_node
    names = [ENVIRONMENT_LOG, *log_names(distribution_of(properties), ranks)]
    root = workspace.configuration.datastores[ARTIFACT_DATASTORE]
    folder = artifacts_of(resource.name, root).child("user_logs")
    return {f"user_logs/{name}": _readable_url(workspace, folder.child(name)) for name in names}


def _readable_url(workspace: Workspace, blob: BlobPath) -> str:
    sas = service_sas(
        account=blob.account,
        key=workspace.environment.storage_key(blob.account),
        container=blob.container,
        blob=blob.path,
        permissions="r",
        expiry=datetime.fromtimestamp(workspace.clock(), tz=UTC) + LOG_URL_LIFETIME,
    )
    origin = f"http://{LOOPBACK}:{workspace.environment.ports.blob}/{blob.account}"
    return f"{origin}/{blob.container}/{quote(blob.path)}?{sas}"
