"""AmlCompute clusters.

https://learn.microsoft.com/rest/api/azureml/compute
"""

from __future__ import annotations

import sqlite3
from typing import Any

from aiohttp import web

from localazure.machinelearning.arm import (
    CONTROL_LOOP,
    PRINCIPAL,
    ROLE_ASSIGNMENTS,
    WORKSPACE,
    WORKSPACE_PATH,
    add_reads,
    envelope,
    find_resource,
    operation_headers,
    operation_status,
    path_name,
    put_response,
    read_body,
    timestamp,
)
from localazure.machinelearning.authorization import check_assignment
from localazure.machinelearning.compute.clusters import (
    COMPUTES,
    check_quota,
    is_low_priority,
    list_clusters,
    parse_cluster,
    runtime_properties,
)
from localazure.machinelearning.errors import ArmError, not_found
from localazure.machinelearning.jobs.runner_protocol import Outcome, StopOrder
from localazure.machinelearning.jobs.store import list_nodes
from localazure.machinelearning.resources.workspace import LOCATION_PATH
from localazure.machinelearning.store import (
    Resource,
    delete_resource,
    get_resource,
    put_resource,
)
from localazure.runtime.environment import LOOPBACK
from localazure.sqlite.query import querying

routes = web.RouteTableDef()

_PATH = f"{WORKSPACE_PATH}/{COMPUTES}"
_STATUSES = "computeOperationsStatus"


@routes.put(f"{_PATH}/{{name}}")
async def put_compute(request: web.Request) -> web.Response:
    """Create a cluster, or replace its settings: a long-running operation, as on Azure.

    The cluster is durable before the response, so the first poll returns success.
    """
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    body = await read_body(request)
    cluster = parse_cluster(name, body)
    check_assignment(
        request[PRINCIPAL],
        (body.get("identity") or {}).get("userAssignedIdentities") or {},
        f"{workspace.id}/{COMPUTES}/{name}",
        request.app[ROLE_ASSIGNMENTS].permit,
    )

    def put(connection: sqlite3.Connection) -> tuple[Resource, bool]:
        clusters = list_clusters(querying(connection))
        check_quota(cluster, clusters, workspace.configuration.quotas)
        return put_resource(connection, COMPUTES, name, "", body, now=workspace.clock())

    resource, is_new = await workspace.database.write(put)
    request.app[CONTROL_LOOP].wake()
    headers = _operation(request, f"put-{name}")
    del headers["Location"]  # on Azure, a PUT of a compute has no such header
    return put_response(_document(request, resource), headers, is_new=is_new, goes_on=True)


@routes.delete(f"{_PATH}/{{name}}")
async def delete_compute(request: web.Request) -> web.Response:
    """Delete a cluster; its running and waiting jobs fail."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)

    def delete(connection: sqlite3.Connection) -> tuple[bool, set[str]]:
        jobs = {node.job for node in list_nodes(querying(connection), name) if node.job}
        return delete_resource(connection, COMPUTES, name), jobs

    was_there, jobs = await workspace.database.write(delete)
    if not was_there:
        return web.Response(status=204)
    for job in jobs:
        order = StopOrder(
            outcome=Outcome.FAILED,
            is_graceful=True,
            code="ComputeNotFound",
            message=f"the compute {name!r} was deleted",
        )
        await request.app[CONTROL_LOOP].attempts.stop(job, order)
    request.app[CONTROL_LOOP].wake()
    return web.Response(status=202, headers=_operation(request, f"delete-{name}"))


@routes.get(f"{LOCATION_PATH}/{_STATUSES}/{{operation}}")
async def get_operation(request: web.Request) -> web.Response:
    """State of a cluster's PUT or DELETE, derived from the cluster's current state."""
    kind, _, name = request.match_info["operation"].partition("-")
    query = request.app[WORKSPACE].database.read
    is_present = get_resource(query, COMPUTES, name) is not None
    has_nodes = bool(list_nodes(query, name))
    match kind:
        case "put" if is_present:
            status = "Succeeded"
        case "delete" if not is_present:
            status = "InProgress" if has_nodes else "Succeeded"
        case _:
            status = "Canceled"  # a later request did the opposite
    return operation_status(request, status)


@routes.post(f"{_PATH}/{{name}}/listNodes")
async def list_compute_nodes(request: web.Request) -> web.Response:
    """List the nodes of a cluster with their jobs."""
    cluster = find_resource(request, COMPUTES, "compute").name
    nodes = [
        {
            "nodeId": str(node.number),
            "privateIpAddress": LOOPBACK,
            "nodeState": node.state,
            "runId": node.job,
        }
        for node in list_nodes(request.app[WORKSPACE].database.read, cluster)
    ]
    return web.json_response({"nodes": nodes})


@routes.post(f"/admin/{COMPUTES}/{{name}}/nodes/{{number:[0-9]+}}/preempt")
async def preempt_node(request: web.Request) -> web.Response:
    """Preempt a low-priority node; only localazure has this operation."""
    resource = find_resource(request, COMPUTES, "compute")
    number = int(request.match_info["number"])
    if not is_low_priority(resource):
        raise ArmError(
            409, "NotPreemptible", f"compute {resource.name!r} is dedicated, not preemptible"
        )
    node = await request.app[CONTROL_LOOP].preempt(resource.name, number)
    if node is None:
        raise not_found("node", f"{resource.name}/{number}")
    return web.json_response({"job": node.job}, status=202)


def _document(request: web.Request, resource: Resource) -> dict[str, Any]:
    workspace = request.app[WORKSPACE]
    cluster = parse_cluster(resource.name, resource.document)
    runtime = runtime_properties(
        cluster,
        list_nodes(workspace.database.read, resource.name),
        is_short_of_quota=resource.name in request.app[CONTROL_LOOP].short_of_quota,
        is_short_of_capacity=resource.name in request.app[CONTROL_LOOP].short_of_capacity,
        modified_at=resource.modified_at,
    )
    properties = {
        **resource.properties,
        "provisioningState": "Succeeded",
        "provisioningErrors": None,
        "isAttachedCompute": False,
        "createdOn": timestamp(resource.created_at),
        "modifiedOn": timestamp(resource.modified_at),
        "properties": {**(resource.properties.get("properties") or {}), **runtime},
    }
    return envelope(workspace, resource, properties)


def _operation(request: web.Request, operation: str) -> dict[str, str]:
    return operation_headers(request, _STATUSES, operation, version="2023-08-01-preview")


add_reads(routes, COMPUTES, "compute", _document)
