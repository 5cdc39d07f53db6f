"""Model deployments of batch endpoints, without processes: each request starts a job.

https://learn.microsoft.com/rest/api/azureml/batch-deployments
"""

from __future__ import annotations

import sqlite3
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import parse_compute
from localazure.machinelearning.arm import WORKSPACE, envelope, listing, put_response, read_body
from localazure.machinelearning.compute.clusters import COMPUTES
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.resources.batch_endpoints import (
    ENDPOINT_PATH,
    default_of,
    deployments_of,
    find_deployment,
    find_endpoint,
    find_source,
)
from localazure.machinelearning.resources.online_endpoints import online_name, operation
from localazure.machinelearning.serving.batch_jobs import BatchSettings
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

_PATH = f"{ENDPOINT_PATH}/deployments"
# https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
_MOST_DEPLOYMENTS = 20


@routes.get(_PATH)
async def list_all(request: web.Request) -> web.Response:
    """The deployments of an endpoint, newest first."""
    workspace = request.app[WORKSPACE]
    endpoint = find_endpoint(workspace.database.read, request.match_info["endpoint"]).name
    deployments = list_resources(workspace.database.read, deployments_of(endpoint))
    return listing(request, [_document(workspace, each) for each in deployments])


@routes.get(f"{_PATH}/{{deployment}}")
async def get(request: web.Request) -> web.Response:
    """One deployment."""
    workspace = request.app[WORKSPACE]
    endpoint, name = request.match_info["endpoint"], request.match_info["deployment"]
    deployment = find_deployment(workspace.database.read, endpoint, name)
    return web.json_response(_document(workspace, deployment))


@routes.put(f"{_PATH}/{{deployment}}")
async def put(request: web.Request) -> web.Response:
    """Create or replace a deployment: a long-running operation that succeeds immediately."""
    workspace = request.app[WORKSPACE]
    endpoint, name = request.match_info["endpoint"], online_name(request, "deployment")
    body = await read_body(request)
    collection = deployments_of(endpoint)

    def write(connection: sqlite3.Connection) -> tuple[Resource, bool]:
        query = querying(connection)
        find_endpoint(query, endpoint)
        is_new = get_resource(query, collection, name) is None
        if is_new and len(list_resources(query, collection)) >= _MOST_DEPLOYMENTS:
            raise invalid(f"endpoint {endpoint!r} has {_MOST_DEPLOYMENTS} deployments already")
        _check(query, name, body["properties"])
        return put_resource(connection, collection, name, "", body, now=workspace.clock())

    deployment, is_new = await workspace.database.write(write)
    headers = operation(request, "put-batch-deployment", endpoint, name)
    return put_response(_document(workspace, deployment), headers, is_new=is_new)


@routes.delete(f"{_PATH}/{{deployment}}")
async def delete(request: web.Request) -> web.Response:
    """Delete a deployment that is not the default; its jobs continue."""
    endpoint, name = request.match_info["endpoint"], request.match_info["deployment"]

    def write(connection: sqlite3.Connection) -> bool:
        if default_of(find_endpoint(querying(connection), endpoint).properties) == name:
            raise invalid(
                f"deployment {name!r} is the default of endpoint {endpoint!r}; make another one "
                "the default first"
            )
        return delete_resource(connection, deployments_of(endpoint), name)

    if not await request.app[WORKSPACE].database.write(write):
        return web.Response(status=204)
    headers = operation(request, "delete-batch-deployment", endpoint, name)
    return web.Response(status=202, headers=headers)


def _check(query: Query, name: str, properties: dict[str, Any]) -> None:
    """Refuse a deployment whose jobs could not run."""
    configuration: dict[str, Any] = properties.get("deploymentConfiguration") or {}
    kind = configuration.get("deploymentConfigurationType", "Model")
    if kind != "Model":
        raise ArmError(
            501,
            "NotImplemented",
            f"deployment {name!r}: {kind} deployments of batch endpoints are not covered by the "
            "local workspace; it has model deployments",
        )
    if not properties.get("compute"):
        raise invalid(f"deployment {name!r}: compute is missing; name a cluster")
    require_resource(query, COMPUTES, parse_compute(properties["compute"]), label="compute")
    BatchSettings.from_deployment(properties)
    find_source(query, name, properties)


def _document(workspace: Workspace, deployment: Resource) -> dict[str, Any]:
    properties = {
        **deployment.properties,
        "properties": deployment.properties.get("properties") or {},
        "provisioningState": "Succeeded",
    }
    document = envelope(workspace, deployment, properties)
    return {**document, "location": workspace.environment.location}
