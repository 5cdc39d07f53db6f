"""Batch endpoints, and the scoring jobs that their requests start.

https://learn.microsoft.com/rest/api/azureml/batch-endpoints
"""

from __future__ import annotations

import sqlite3
import uuid
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import PROVIDER
from localazure.machinelearning.arm import (
    CONTROL_LOOP,
    WORKSPACE,
    WORKSPACE_PATH,
    add_reads,
    envelope,
    listing,
    put_response,
    read_body,
)
from localazure.machinelearning.errors import ArmError, invalid, not_found
from localazure.machinelearning.jobs.store import JOBS, JobTransaction, get_job, write_jobs
from localazure.machinelearning.resources.jobs import check_job_name, submit
from localazure.machinelearning.resources.online_endpoints import online_name, operation
from localazure.machinelearning.serving.batch_jobs import (
    COMPONENT,
    DEPLOYMENT_PROPERTY,
    ENDPOINT_PROPERTY,
    BatchSettings,
    component_spec,
    component_version,
    job_properties,
    model_of,
    requested_file_name,
)
from localazure.machinelearning.serving.deployments import resolve_source
from localazure.machinelearning.serving.instances import Source
from localazure.machinelearning.serving.scoring import DEPLOYMENT_HEADER
from localazure.machinelearning.store import (
    Resource,
    delete_resource,
    get_resource,
    list_resources,
    put_resource,
    require_resource,
)
from localazure.machinelearning.workspace import Workspace
from localazure.sqlite.query import Query, querying

routes = web.RouteTableDef()

ENDPOINTS = "batchEndpoints"
ENDPOINT_PATH = f"{WORKSPACE_PATH}/{ENDPOINTS}/{{endpoint}}"
# The data plane's paths have this prefix before ARM's path.
JOBS_PREFIX = "/mferp/managementfrontend"
REQUEST_ID_HEADER = "repeatability-request-id"


@routes.put(ENDPOINT_PATH)
async def put(request: web.Request) -> web.Response:
    """Create an endpoint, or set its default deployment: a long-running operation, as on Azure.

    The endpoint is durable before the response, so the first poll returns success.
    """
    workspace = request.app[WORKSPACE]
    name = online_name(request, "endpoint")
    body = await read_body(request)
    if str(body["properties"].get("authMode", "")).lower() != "aadtoken":
        raise invalid("authMode of a batch endpoint is AADToken")

    def write(connection: sqlite3.Connection) -> tuple[Resource, bool]:
        default, deployments = default_of(body["properties"]), deployments_of(name)
        if default and get_resource(querying(connection), deployments, default) is None:
            raise invalid(
                f"endpoint {name!r} has no deployment {default!r}; create it, then make it the "
                "default"
            )
        return put_resource(connection, ENDPOINTS, name, "", body, now=workspace.clock())

    endpoint, is_new = await workspace.database.write(write)
    headers = operation(request, "put-batch-endpoint", name)
    return put_response(_document(request, endpoint), headers, is_new=is_new)


@routes.delete(ENDPOINT_PATH)
async def delete(request: web.Request) -> web.Response:
    """Delete an endpoint with its deployments, but not its jobs."""
    name = request.match_info["endpoint"]

    def write(connection: sqlite3.Connection) -> bool:
        for deployment in list_resources(querying(connection), deployments_of(name)):
            delete_resource(connection, deployments_of(name), deployment.name)
        return delete_resource(connection, ENDPOINTS, name)

    if not await request.app[WORKSPACE].database.write(write):
        return web.Response(status=204)
    return web.Response(status=202, headers=operation(request, "delete-batch-endpoint", name))


@routes.post(f"{JOBS_PREFIX}{ENDPOINT_PATH}/jobs")
async def invoke(request: web.Request) -> web.Response:
    """Start a scoring job; a repeated request returns the same job."""
    workspace = request.app[WORKSPACE]
    name = request.match_info["endpoint"]
    body = await read_body(request)
    scoring: dict[str, Any] = body["properties"]
    job = str(scoring.get("name") or f"batchjob-{_request_id(request)}")
    check_job_name(job)

    def write(jobs: JobTransaction) -> Resource:
        existing = get_resource(jobs.query, JOBS, job)
        if existing is not None:
            if scoring.get("name"):
                raise ArmError(409, "Conflict", f"job {job!r} exists; use another name")
            return existing
        default = default_of(find_endpoint(jobs.query, name).properties)
        deployment = request.headers.get(DEPLOYMENT_HEADER) or default
        if not deployment:
            raise invalid(
                f"endpoint {name!r} has no default deployment; set one, or name a deployment"
            )
        return _start(jobs, name, deployment, job, scoring)

    resource = await write_jobs(workspace, write)
    request.app[CONTROL_LOOP].wake()
    return web.json_response(_job_document(workspace, resource), status=201)


@routes.get(f"{JOBS_PREFIX}{ENDPOINT_PATH}/jobs")
async def list_jobs_of_endpoint(request: web.Request) -> web.Response:
    """The scoring jobs of an endpoint, newest first."""
    query, endpoint = request.app[WORKSPACE].database.read, request.match_info["endpoint"]
    return _list_jobs(request, {ENDPOINT_PROPERTY: find_endpoint(query, endpoint).name})


@routes.get(f"{JOBS_PREFIX}{ENDPOINT_PATH}/deployments/{{deployment}}/jobs")
async def list_jobs_of_deployment(request: web.Request) -> web.Response:
    """The scoring jobs of a deployment, newest first."""
    query = request.app[WORKSPACE].database.read
    endpoint, name = request.match_info["endpoint"], request.match_info["deployment"]
    find_deployment(query, endpoint, name)
    return _list_jobs(request, {ENDPOINT_PROPERTY: endpoint, DEPLOYMENT_PROPERTY: name})


def deployments_of(endpoint: str) -> str:
    """The collection of an endpoint's deployments."""
    return f"{ENDPOINTS}/{endpoint}/deployments"


def default_of(properties: dict[str, Any]) -> str | None:
    """The name of an endpoint's default deployment; None without one."""
    return (properties.get("defaults") or {}).get("deploymentName") or None


def find_endpoint(query: Query, name: str) -> Resource:
    """One endpoint.

    Raises:
        ArmError: 404.
    """
    return require_resource(query, ENDPOINTS, name, label="batch endpoint")


def find_deployment(query: Query, endpoint: str, name: str) -> Resource:
    """One deployment of an endpoint.

    Raises:
        ArmError: 404.
    """
    find_endpoint(query, endpoint)
    deployment = get_resource(query, deployments_of(endpoint), name)
    if deployment is None:
        raise not_found("batch deployment", f"{endpoint}/{name}")
    return deployment


def find_source(query: Query, name: str, properties: dict[str, Any]) -> Source:
    """Resolve the locations of a deployment's code and model.

    Raises:
        ArmError: a field is missing, a reference does not exist, or the model is not covered.
    """
    return resolve_source(query, name, {**properties, "model": model_of(properties)})


def _start(
    jobs: JobTransaction, endpoint: str, deployment: str, job: str, scoring: dict[str, Any]
) -> Resource:
    properties = find_deployment(jobs.query, endpoint, deployment).properties
    settings = BatchSettings.from_deployment(properties).override(
        {**scoring, "outputFileName": scoring.get("outputFileName") or requested_file_name(scoring)}
    )
    spec = component_spec(find_source(jobs.query, deployment, properties), properties, settings)
    version = component_version(spec)
    component = {"properties": {"componentSpec": spec, "isAnonymous": True, "isArchived": True}}
    put_resource(jobs.connection, "components", COMPONENT, version, component, now=jobs.now)
    document = job_properties(
        endpoint=endpoint,
        deployment=deployment,
        properties=properties,
        request=scoring,
        component=f"{jobs.workspace}/components/{COMPONENT}/versions/{version}",
    )
    return submit(jobs, job, {"properties": document})


def _request_id(request: web.Request) -> uuid.UUID:
    header = request.headers.get(REQUEST_ID_HEADER)
    try:
        return uuid.UUID(header) if header else uuid.uuid4()
    except ValueError as error:
        raise invalid(f"{REQUEST_ID_HEADER} {header!r} is not a UUID") from error


def _list_jobs(request: web.Request, labels: dict[str, str]) -> web.Response:
    workspace = request.app[WORKSPACE]
    documents = [
        _job_document(workspace, each)
        for each in list_resources(workspace.database.read, JOBS)
        if labels.items() <= (each.properties.get("properties") or {}).items()
    ]
    return listing(request, documents)


def _job_document(workspace: Workspace, resource: Resource) -> dict[str, Any]:
    job = get_job(workspace.database.read, resource.name)
    document = envelope(workspace, resource, {"status": None if job is None else job.status.value})
    return {**document, "type": f"{PROVIDER}/workspaces/{ENDPOINTS}/deployments/jobs"}


def _document(request: web.Request, endpoint: Resource) -> dict[str, Any]:
    workspace = request.app[WORKSPACE]
    environment = workspace.environment
    path = f"{ENDPOINTS}/{endpoint.name}"
    properties = {
        **endpoint.properties,
        "authMode": "AADToken",
        # Also without one: clients set the name in it.
        "defaults": {"deploymentName": default_of(endpoint.properties)},
        "properties": endpoint.properties.get("properties") or {},
        "provisioningState": "Succeeded",
        "scoringUri": f"{environment.azure_ml_url}{JOBS_PREFIX}{workspace.id}/{path}/jobs",
        "swaggerUri": None,
    }
    document = envelope(workspace, endpoint, properties)
    return {**document, "location": environment.location}


add_reads(routes, ENDPOINTS, "batch endpoint", _document)
