"""Run history: what `jobs.stream` polls, with URLs of the logs as they grow.

The history service has no published specification; the fields are those that the SDK reads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from aiohttp import web
from azure.storage.blob import BlobSasPermissions, generate_blob_sas

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import WORKSPACE, WORKSPACE_PATH, path_name, timestamp
from localazure.machinelearning.configuration import ARTIFACT_DATASTORE
from localazure.machinelearning.errors import not_found
from localazure.machinelearning.job_resolution import node_count
from localazure.machinelearning.job_spec import Distribution, artifacts_of
from localazure.machinelearning.job_table import DEFAULT_EXPERIMENT, JOBS, JobRow, get_job
from localazure.machinelearning.processes import log_names
from localazure.machinelearning.store import Resource, get_resource
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import LOOPBACK, STORAGE_ACCOUNT, STORAGE_KEY

routes = web.RouteTableDef()

LOG_URL_LIFETIME = timedelta(hours=8)
_PATH = f"/history/v1.0{WORKSPACE_PATH}"


@routes.get(f"{_PATH}/runs/{{name}}/details")
async def get_run_details(request: web.Request) -> web.Response:
    """State, error and log URLs of a run."""
    workspace = request.app[WORKSPACE]
    resource, job = _find(workspace, path_name(request))
    return web.json_response(_details(workspace, resource, job))


@routes.get(f"{_PATH}/runs/{{name}}")
async def get_run(request: web.Request) -> web.Response:
    """The same without logs."""
    workspace = request.app[WORKSPACE]
    resource, job = _find(workspace, path_name(request))
    return web.json_response({**_details(workspace, resource, job), "logFiles": {}})


def _find(workspace: Workspace, name: str) -> tuple[Resource, JobRow]:
    resource = get_resource(workspace.database.read, JOBS, name)
    job = get_job(workspace.database.read, name)
    if resource is None or job is None:
        raise not_found("run", name)
    return resource, job


def _details(workspace: Workspace, resource: Resource, job: JobRow) -> dict[str, Any]:
    properties = resource.properties
    details: dict[str, Any] = {
        "runId": job.name,
        "target": job.cluster,
        "status": job.status.value,
        "createdTimeUtc": timestamp(resource.created_at),
        "startTimeUtc": None if job.started_at is None else timestamp(job.started_at),
        "endTimeUtc": None if job.ended_at is None else timestamp(job.ended_at),
        "services": {},
        "properties": properties.get("properties") or {},
        "tags": properties.get("tags") or {},
        "experimentName": properties.get("experimentName") or DEFAULT_EXPERIMENT,
        "logFiles": _log_urls(workspace, resource) if job.started_at is not None else {},
        "warnings": [],
    }
    if job.error_code:
        # The SDK prints this text when it raises JobException.
        details["error"] = {"error": {"code": job.error_code, "message": job.error_message}}
    return details


def _log_urls(workspace: Workspace, resource: Resource) -> dict[str, str]:
    properties = resource.properties
    distribution = properties.get("distribution") or {}
    kind = str(distribution.get("distributionType"))
    names = log_names(
        {"PyTorch": Distribution.PYTORCH, "Mpi": Distribution.MPI}.get(kind, Distribution.NONE),
        node_count(properties) * (distribution.get("processCountPerInstance") or 1),
    )
    container = workspace.configuration.datastores[ARTIFACT_DATASTORE]
    folder = artifacts_of(resource.name, container).child("user_logs")
    now = datetime.fromtimestamp(workspace.clock(), tz=UTC)
    return {
        f"user_logs/{name}": _readable_url(workspace, folder.child(name), now) for name in names
    }


def _readable_url(workspace: Workspace, blob: BlobPath, now: datetime) -> str:
    sas = generate_blob_sas(
        account_name=STORAGE_ACCOUNT,
        container_name=blob.container,
        blob_name=blob.path,
        account_key=STORAGE_KEY,
        permission=BlobSasPermissions(read=True),
        expiry=now + LOG_URL_LIFETIME,
    )
    origin = f"http://{LOOPBACK}:{workspace.environment.ports.blob}/{STORAGE_ACCOUNT}"
    return f"{origin}/{blob.container}/{quote(blob.path)}?{sas}"
