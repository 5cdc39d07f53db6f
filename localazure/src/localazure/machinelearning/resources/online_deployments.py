"""Deployments of managed online endpoints.

https://learn.microsoft.com/rest/api/azureml/online-deployments
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from aiohttp import web

from localazure.machinelearning.arm import (
    WORKSPACE,
    arm_document,
    listing,
    put_response,
    read_body,
    read_object,
)
from localazure.machinelearning.errors import ArmError, invalid, not_found
from localazure.machinelearning.resources.online_endpoints import (
    ENDPOINT_PATH,
    ENDPOINTS,
    ONLINE,
    find_endpoint,
    online_name,
    operation,
)
from localazure.machinelearning.serving.data_collector import collector_settings
from localazure.machinelearning.serving.instances import (
    SERVER_LOG,
    STORAGE_LOG,
    DeploymentFolder,
)
from localazure.machinelearning.serving.store import (
    Deployment,
    delete_deployment,
    get_deployment,
    get_endpoint,
    list_deployments,
    put_deployment,
)
from localazure.machinelearning.serving.traffic import parse_traffic
from localazure.sqlite.query import Query, querying

routes = web.RouteTableDef()

_PATH = f"{ENDPOINT_PATH}/deployments"
_LOGS = {None: SERVER_LOG, "InferenceServer": SERVER_LOG, "StorageInitializer": STORAGE_LOG}
# https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas
_MOST_DEPLOYMENTS = 20
_MOST_INSTANCES = 50


@routes.get(_PATH)
async def list_all(request: web.Request) -> web.Response:
    """The deployments of an endpoint."""
    endpoint = find_endpoint(request)
    deployments = list_deployments(request.app[ONLINE].database.read, endpoint.name)
    return listing(request, [_document(request, each) for each in deployments])


@routes.get(f"{_PATH}/{{deployment}}")
async def get(request: web.Request) -> web.Response:
    """Return a deployment with its provisioning state."""
    return web.json_response(_document(request, _find(request)))


@routes.put(f"{_PATH}/{{deployment}}")
async def put(request: web.Request) -> web.Response:
    """Create or replace a deployment; its processes start after the response."""
    online, workspace = request.app[ONLINE], request.app[WORKSPACE]
    endpoint, name = find_endpoint(request), online_name(request, "deployment")
    body = await read_body(request)
    if body["properties"].get("endpointComputeType", "Managed") != "Managed":
        raise invalid("Kubernetes deployments are not covered")
    collector_settings(body["properties"])
    now = workspace.clock()

    def write(connection: sqlite3.Connection) -> tuple[Deployment, bool]:
        query = querying(connection)
        is_new = get_deployment(query, endpoint.name, name) is None
        if is_new and len(list_deployments(query, endpoint.name)) >= _MOST_DEPLOYMENTS:
            raise invalid(f"endpoint {endpoint.name!r} has {_MOST_DEPLOYMENTS} deployments already")
        deployment = put_deployment(connection, endpoint.name, name, body, now=now)
        _check_instances(query, deployment, workspace.configuration.quota)
        return deployment, is_new

    deployment, is_new = await online.database.write(write)
    online.deployments.provision(deployment)
    headers = operation(request, "put-deployment", endpoint.name, name)
    return put_response(_document(request, deployment), headers, is_new=is_new)


@routes.delete(f"{_PATH}/{{deployment}}")
async def delete(request: web.Request) -> web.Response:
    """Delete a deployment that receives no traffic."""
    online = request.app[ONLINE]
    endpoint, name = find_endpoint(request), request.match_info["deployment"]

    def write(connection: sqlite3.Connection) -> Deployment | None:
        query = querying(connection)
        deployment = get_deployment(query, endpoint.name, name)
        current = get_endpoint(query, endpoint.name)
        if deployment is None or current is None:
            return None
        names = [each.name.lower() for each in list_deployments(query, endpoint.name)]
        traffic, mirror = parse_traffic(current.properties, deployments=names)
        if name.lower() in {**traffic, **mirror}:
            raise invalid(
                f"deployment {name!r} gets traffic; set its traffic and mirror traffic to 0 first"
            )
        delete_deployment(connection, endpoint.name, name)
        return deployment

    deployment = await online.database.write(write)
    if deployment is None:
        return web.Response(status=204)
    await online.deployments.remove(deployment)
    headers = operation(request, "delete-deployment", endpoint.name, name)
    return web.Response(status=202, headers=headers)


@routes.post(f"{_PATH}/{{deployment}}/getLogs")
async def get_logs(request: web.Request) -> web.Response:
    """The last lines of a deployment's log."""
    deployment = _find(request)
    body = await read_object(request)
    kind, lines = body.get("containerType"), body.get("tail", 100)
    if kind not in _LOGS or not isinstance(lines, int) or lines < 0:
        raise invalid("containerType is StorageInitializer or InferenceServer, tail a number")
    folder = DeploymentFolder(request.app[WORKSPACE], deployment)
    content = await asyncio.to_thread(folder.tail, _LOGS[kind], lines)
    return web.json_response({"content": content})


def _check_instances(query: Query, deployment: Deployment, quota: dict[str, int]) -> None:
    """Refuse more instances than the limit per deployment or the quota of the VM size."""
    if not 1 <= deployment.instance_count <= _MOST_INSTANCES:
        raise invalid(f"sku.capacity must be from 1 to {_MOST_INSTANCES}")
    size = deployment.instance_type
    limit = quota.get(size.lower())
    if limit is None:
        return
    used = sum(
        each.instance_count
        for each in list_deployments(query)
        if each.instance_type.lower() == size.lower() and each.key != deployment.key
    )
    if used + deployment.instance_count > limit:
        raise ArmError(
            400,
            "OutOfQuota",
            f"Not enough quota available for {size}. Current usage/limit: {used}/{limit}. "
            f"Additional needed: {deployment.instance_count}. Please see troubleshooting guide, "
            "available here: https://aka.ms/oe-tsg#error-outofquota",
        )


def _find(request: web.Request) -> Deployment:
    endpoint, name = find_endpoint(request), request.match_info["deployment"]
    deployment = get_deployment(request.app[ONLINE].database.read, endpoint.name, name)
    if deployment is None:
        raise not_found("online deployment", f"{endpoint.name}/{name}")
    return deployment


def _document(request: web.Request, deployment: Deployment) -> dict[str, Any]:
    workspace = request.app[WORKSPACE]
    path = f"{ENDPOINTS}/{deployment.endpoint}/deployments/{deployment.name}"
    properties = {
        "scaleSettings": {"scaleType": "Default"},
        **deployment.properties,
        "endpointComputeType": "Managed",
        "properties": deployment.properties.get("properties") or {},
        "provisioningState": deployment.state,
    }
    document = arm_document(workspace, path, deployment, properties)
    return {**document, "location": workspace.environment.location}
