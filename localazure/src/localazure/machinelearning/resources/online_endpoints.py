"""Managed online endpoints: their documents, traffic, keys, metrics and scoring.

https://learn.microsoft.com/rest/api/azureml/online-endpoints
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import PROVIDER
from localazure.machinelearning.arm import (
    TOKENS,
    WORKSPACE,
    WORKSPACE_PATH,
    arm_document,
    listing,
    operation_headers,
    operation_status,
    put_response,
    read_body,
    read_object,
)
from localazure.machinelearning.errors import ArmError, invalid, not_found
from localazure.machinelearning.resources.workspace import LOCATION_PATH
from localazure.machinelearning.serving import metrics
from localazure.machinelearning.serving.deployments import Deployments
from localazure.machinelearning.serving.scoring import DEPLOYMENT_HEADER, SCORE_PATH, Scoring
from localazure.machinelearning.serving.store import (
    CHANGING,
    DeploymentState,
    Endpoint,
    delete_endpoint,
    get_deployment,
    get_endpoint,
    list_deployments,
    list_endpoints,
    put_endpoint,
    read_counts,
    renew_key,
)
from localazure.machinelearning.serving.traffic import parse_traffic
from localazure.sqlite.database import Database
from localazure.sqlite.query import querying

routes = web.RouteTableDef()

ENDPOINTS = "onlineEndpoints"
ENDPOINT_PATH = f"{WORKSPACE_PATH}/{ENDPOINTS}/{{endpoint}}"
SCORING_PREFIX = "/online-endpoints"
# https://learn.microsoft.com/azure/machine-learning/how-to-manage-quotas#endpoint-naming
_NAME = re.compile(r"^[a-zA-Z][a-zA-Z0-9-]{1,30}[a-zA-Z0-9]$")
_AUTH_MODES = ("Key", "AMLToken", "AADToken")
SCORING_LIMIT_BYTES = 10 * 1024 * 1024
_STATUSES = "onlineOperationsStatus"


@dataclass(frozen=True)
class Online:
    """The parts that serve online endpoints."""

    database: Database
    deployments: Deployments
    scoring: Scoring


ONLINE = web.AppKey("online", Online)


@routes.get(f"{WORKSPACE_PATH}/{ENDPOINTS}")
async def list_all(request: web.Request) -> web.Response:
    """All endpoints."""
    endpoints = list_endpoints(request.app[ONLINE].database.read)
    return listing(request, [_document(request, each) for each in endpoints])


@routes.get(ENDPOINT_PATH)
async def get(request: web.Request) -> web.Response:
    """One endpoint, with its traffic."""
    return web.json_response(_document(request, find_endpoint(request)))


@routes.put(ENDPOINT_PATH)
async def put(request: web.Request) -> web.Response:
    """Create an endpoint, or set its traffic: a long-running operation, as on Azure.

    The endpoint is durable before the response, so the first poll returns success.
    """
    name = online_name(request, "endpoint")
    body = await read_body(request)
    properties = body["properties"]
    if properties.get("compute"):
        raise invalid("Kubernetes endpoints are not covered; leave compute out")
    if properties.get("authMode") not in _AUTH_MODES:
        raise invalid(f"authMode is {properties.get('authMode')!r}; use {', '.join(_AUTH_MODES)}")
    now = request.app[WORKSPACE].clock()

    def write(connection: sqlite3.Connection) -> tuple[Endpoint, bool]:
        query = querying(connection)
        existing = get_endpoint(query, name)
        if existing is not None and existing.properties["authMode"] != properties["authMode"]:
            raise ArmError(409, "Conflict", "authMode of an endpoint cannot change")
        names = [each.name.lower() for each in list_deployments(query, name)]
        traffic, mirror = parse_traffic(properties, deployments=names)
        parsed = {**properties, "traffic": traffic, "mirrorTraffic": mirror}
        endpoint = put_endpoint(connection, name, {**body, "properties": parsed}, now=now)
        return endpoint, existing is None

    endpoint, is_new = await request.app[ONLINE].database.write(write)
    headers = operation(request, "put-endpoint", name)
    return put_response(_document(request, endpoint), headers, is_new=is_new, goes_on=True)


@routes.delete(ENDPOINT_PATH)
async def delete(request: web.Request) -> web.Response:
    """Delete an endpoint with its deployments."""
    online, name = request.app[ONLINE], online_name(request, "endpoint")
    deployments = list_deployments(online.database.read, name)
    was_there = await online.database.write(lambda connection: delete_endpoint(connection, name))
    if not was_there:
        return web.Response(status=204)
    await asyncio.gather(*(online.deployments.remove(each) for each in deployments))
    return web.Response(status=202, headers=operation(request, "delete-endpoint", name))


@routes.post(f"{ENDPOINT_PATH}/listKeys")
async def list_keys(request: web.Request) -> web.Response:
    """The keys of an endpoint with authMode Key."""
    endpoint = find_endpoint(request)
    if endpoint.properties["authMode"] != "Key":
        raise invalid(f"endpoint {endpoint.name!r} does not use keys")
    return web.json_response(
        {"primaryKey": endpoint.primary_key, "secondaryKey": endpoint.secondary_key}
    )


@routes.post(f"{ENDPOINT_PATH}/regenerateKeys")
async def regenerate_keys(request: web.Request) -> web.Response:
    """Replace the primary or the secondary key."""
    endpoint = find_endpoint(request)
    body = await read_object(request)
    kind = body.get("keyType")
    if kind not in ("Primary", "Secondary"):
        raise invalid(f"keyType is {kind!r}; use Primary or Secondary")
    # The SDK sends the old key as keyValue; ignore it and generate a new key.
    await request.app[ONLINE].database.write(
        lambda connection: renew_key(connection, endpoint.name, is_primary=kind == "Primary")
    )
    return web.Response(status=202, headers=operation(request, "put-endpoint", endpoint.name))


@routes.post(f"{ENDPOINT_PATH}/token")
async def get_token(request: web.Request) -> web.Response:
    """Issue a token for an endpoint with authMode AMLToken."""
    find_endpoint(request)
    workspace = request.app[WORKSPACE]
    audience = workspace.environment.azure_ml_url
    token, expires_on = request.app[TOKENS].issue(audience, now=workspace.clock())
    return web.json_response(
        {
            "accessToken": token,
            "expiryTimeUtc": expires_on,
            "refreshAfterTimeUtc": expires_on,
            "tokenType": "Bearer",
        }
    )


@routes.get(f"{ENDPOINT_PATH}/providers/Microsoft.Insights/metrics")
async def get_metrics(request: web.Request) -> web.Response:
    """Return an endpoint's metrics over a time span, by minute."""
    endpoint = find_endpoint(request)
    workspace, online = request.app[WORKSPACE], request.app[ONLINE]
    await online.scoring.flush()
    span = request.query.get("timespan", "")
    first, last = metrics.parse_timespan(span)
    counted = read_counts(online.database.read, endpoint.name, first=first, last=last)
    conditions = metrics.parse_filter(request.query.get("$filter", ""))
    resource = f"{workspace.id}/{ENDPOINTS}/{endpoint.name}"
    return web.json_response(
        {
            "cost": 0,
            "timespan": span,
            "interval": "PT1M",
            "namespace": f"{PROVIDER}/workspaces/{ENDPOINTS}",
            "resourceregion": workspace.environment.location,
            "value": [
                metrics.describe_metric(resource, name, conditions, counted)
                for name in request.query.get("metricnames", "").split(",")
            ],
        }
    )


@routes.route("*", f"{SCORING_PREFIX}/{{endpoint}}{{path:/.*}}")
async def score(request: web.Request) -> web.Response:
    """Forward a scoring request, which is authenticated by the endpoint's keys or tokens."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > SCORING_LIMIT_BYTES:
            return web.Response(status=413, text=f"the body is over {SCORING_LIMIT_BYTES} bytes")
    if request.method != "POST":
        return web.Response(status=405)
    answer = await request.app[ONLINE].scoring.answer(
        request.match_info["endpoint"],
        request.match_info["path"],
        request.headers.get("Authorization", ""),
        request.headers.get(DEPLOYMENT_HEADER),
        bytes(body),
    )
    return web.Response(status=answer.status, body=answer.body, headers=answer.headers)


@routes.get(f"{LOCATION_PATH}/{_STATUSES}/{{operation}}")
async def get_operation(request: web.Request) -> web.Response:
    """State of an endpoint's or a deployment's PUT or DELETE, derived from its current state."""
    kind, _, subject = request.match_info["operation"].partition("_")
    endpoint, _, name = subject.partition("_")
    if kind != "put-deployment":
        return operation_status(request, "Succeeded")  # it took effect before its response
    deployment = get_deployment(request.app[ONLINE].database.read, endpoint, name)
    if deployment is None:
        return operation_status(request, "Canceled")  # the deployment has been deleted
    if deployment.state in CHANGING:
        return operation_status(request, "InProgress")
    error = {"code": deployment.error_code, "message": deployment.error_message}
    is_failed = deployment.state is DeploymentState.FAILED
    return operation_status(request, deployment.state, error if is_failed else None)


def find_endpoint(request: web.Request) -> Endpoint:
    """The endpoint that the URL names.

    Raises:
        ArmError: 404.
    """
    name = request.match_info["endpoint"]
    endpoint = get_endpoint(request.app[ONLINE].database.read, name)
    if endpoint is None:
        raise not_found("online endpoint", name)
    return endpoint


def online_name(request: web.Request, key: str) -> str:
    """The name of an endpoint or deployment from the URL.

    Raises:
        ArmError: 400, the name is not valid.
    """
    name = request.match_info[key]
    if not _NAME.match(name):
        raise invalid(
            f"{name!r} is not a valid {key} name: 3 to 32 letters, digits and '-', "
            "the first a letter, the last no '-'"
        )
    return name


def operation(request: web.Request, kind: str, *subject: str) -> dict[str, str]:
    """The headers of a long-running operation."""
    name = "_".join((kind, *subject))
    return operation_headers(request, _STATUSES, name, version="2023-04-01-preview")


def _document(request: web.Request, endpoint: Endpoint) -> dict[str, Any]:
    workspace = request.app[WORKSPACE]
    base = f"{workspace.environment.azure_ml_url}{SCORING_PREFIX}/{endpoint.name}"
    properties = {
        "publicNetworkAccess": "Enabled",
        **endpoint.properties,
        "properties": endpoint.properties.get("properties") or {},
        "keys": None,
        "provisioningState": "Succeeded",
        "scoringUri": f"{base}{SCORE_PATH}",
        "swaggerUri": f"{base}/swagger.json",
    }
    return {
        "kind": "Managed",
        **arm_document(workspace, f"{ENDPOINTS}/{endpoint.name}", endpoint, properties),
        "location": workspace.environment.location,
    }
