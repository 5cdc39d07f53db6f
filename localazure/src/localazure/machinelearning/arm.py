"""The wire format of all ARM resources: envelopes, lists, request bodies, errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from aiohttp import web

from localazure.json_text import parse_json
from localazure.machinelearning.addresses import PROVIDER
from localazure.machinelearning.control_loop import ControlLoop
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.store import Resource, Stored, list_resources, require_resource
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.identity import TokenIssuer
from localazure.runtime.roles import RoleAssignments

WORKSPACE = web.AppKey("workspace", Workspace)
CONTROL_LOOP = web.AppKey("control_loop", ControlLoop)
TOKENS = web.AppKey("tokens", TokenIssuer)
ROLE_ASSIGNMENTS = web.AppKey("role_assignments", RoleAssignments)
PRINCIPAL = web.RequestKey("principal", str)
"""The principal that a request's token was issued to."""

WORKSPACE_PATH = (
    "/subscriptions/{subscription}/resourceGroups/{resource_group}"
    f"/providers/{PROVIDER}/workspaces/{{workspace}}"
)

# Not Retry-After, which only allows whole seconds and which the Azure SDKs would prefer.
POLL_AFTER = {"x-ms-retry-after-ms": "100"}

# https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_NAME = re.compile(r"^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$")


def arm_document(
    workspace: Workspace, path: str, stored: Stored, properties: dict[str, Any]
) -> dict[str, Any]:
    """The response to a GET or PUT of a resource: its document with ARM's own fields.

    `path` is relative to the workspace; in it, types and names alternate.
    """
    segments = path.split("/")
    return {
        **stored.document,
        "id": f"{workspace.id}/{path}",
        "name": segments[-1],
        "type": "/".join((PROVIDER, "workspaces", *segments[0::2])),
        "properties": properties,
        "systemData": {
            "createdAt": timestamp(stored.created_at),
            "createdBy": "localazure",
            "createdByType": "ManagedIdentity",
            "lastModifiedAt": timestamp(stored.modified_at),
        },
    }


def envelope(
    workspace: Workspace, resource: Resource, properties: dict[str, Any]
) -> dict[str, Any]:
    """`arm_document` for a resource in the store."""
    version = f"/versions/{resource.version}" if resource.version else ""
    path = f"{resource.collection}/{resource.name}{version}"
    return arm_document(workspace, path, resource, properties)


def timestamp(seconds: float) -> str:
    """Format epoch seconds as ARM formats times."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def listing(request: web.Request, entries: Sequence[dict[str, Any]]) -> web.Response:
    """Return a list as one page of at most `$top` entries."""
    top = request.query.get("$top")
    if top is not None:
        if not top.isdecimal():
            raise invalid(f"$top is {top!r}; it must be a number")
        entries = entries[: int(top)]
    return web.json_response({"value": entries})


def is_listed(request: web.Request, properties: dict[str, Any]) -> bool:
    """Whether `listViewType` includes the resource; by default archived ones are excluded."""
    is_archived = bool(properties.get("isArchived"))
    match request.query.get("listViewType", "ActiveOnly"):
        case "All":
            return True
        case "ArchivedOnly":
            return is_archived
        case _:
            return not is_archived


async def read_object(request: web.Request) -> dict[str, Any]:
    """The request's body: a JSON object; an empty body is an empty object.

    Raises:
        ArmError: 400, the body has another form.
    """
    try:
        body: Any = parse_json(await request.read() or b"{}")
    except ValueError as error:
        raise invalid(f"the request body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise invalid("the request body must be an object")
    return cast("dict[str, Any]", body)


async def read_body(request: web.Request) -> dict[str, Any]:
    """The request's body: an object with an object `properties`.

    Raises:
        ArmError: 400, the body has another form.
    """
    body = await read_object(request)
    if not isinstance(body.get("properties"), dict):
        raise invalid("the request body must be an object with `properties`")
    return body


def path_name(request: web.Request, key: str = "name") -> str:
    """A resource name from the URL.

    Raises:
        ArmError: 400, the name is not valid.
    """
    name = request.match_info[key]
    if not _NAME.match(name):
        raise invalid(
            f"{name!r} is not a valid {key}: 1 to 255 letters, digits, '-', '_' and '.', "
            "the first a letter or digit"
        )
    return name


def find_resource(request: web.Request, collection: str, label: str) -> Resource:
    """The resource that the URL names; errors call it `label`.

    Raises:
        ArmError: 400, the name is not valid; 404, the resource does not exist.
    """
    query = request.app[WORKSPACE].database.read
    return require_resource(query, collection, path_name(request), label=label)


def find_version(request: web.Request, collection: str) -> Resource:
    """The version of a named asset that the URL names.

    Raises:
        ArmError: 400, a name is not valid; 404, the version does not exist.
    """
    name, version = path_name(request), path_name(request, "version")
    return require_resource(request.app[WORKSPACE].database.read, collection, name, version)


def add_reads(
    routes: web.RouteTableDef,
    collection: str,
    label: str,
    document: Callable[[web.Request, Resource], dict[str, Any]],
    is_shown: Callable[[web.Request, Resource], bool] = lambda _request, _resource: True,
) -> None:
    """Add GET routes for a collection without versions, newest first, and for one resource in it.

    A list includes the resources for which `is_shown` is true. Errors call a resource `label`.
    """
    path = f"{WORKSPACE_PATH}/{collection}"

    @routes.get(path)
    async def list_all(request: web.Request) -> web.Response:
        resources = list_resources(request.app[WORKSPACE].database.read, collection)
        documents = [document(request, each) for each in resources if is_shown(request, each)]
        return listing(request, documents)

    @routes.get(f"{path}/{{name}}")
    async def get(request: web.Request) -> web.Response:
        return web.json_response(document(request, find_resource(request, collection, label)))


def put_response(
    document: dict[str, Any],
    operation: dict[str, str] | None = None,
    *,
    is_new: bool,
    goes_on: bool = False,
) -> web.Response:
    """The response to a PUT with its operation's headers; `goes_on`: the operation still runs."""
    if goes_on:
        document["properties"]["provisioningState"] = "Creating" if is_new else "Updating"
    return web.json_response(document, status=201 if is_new else 200, headers=operation)


def operation_headers(
    request: web.Request, statuses: str, operation: str, *, version: str
) -> dict[str, str]:
    """The headers of a long-running operation: where and when to poll it.

    `statuses` is the collection of operations, such as `computeOperationsStatus`.
    """
    environment = request.app[WORKSPACE].environment
    url = (
        f"{environment.azure_ml_url}/subscriptions/{environment.subscription_id}"
        f"/providers/{PROVIDER}/locations/{environment.location}"
        f"/{statuses}/{operation}?api-version={version}"
    )
    return {"Azure-AsyncOperation": url, "Location": url, **POLL_AFTER}


def operation_status(
    request: web.Request, status: str, error: dict[str, str] | None = None
) -> web.Response:
    """The response to a poll: `InProgress`, `Succeeded`, `Failed` with an error, or `Canceled`."""
    name = request.match_info["operation"]
    document = {"id": request.path, "name": name, "status": status}
    return web.json_response(
        {**document, "error": error} if error else document,
        headers=POLL_AFTER if status == "InProgress" else {},
    )


def error_response(error: ArmError, headers: Mapping[str, str] | None = None) -> web.Response:
    """The response to a failed request."""
    body = {"error": {"code": error.code, "message": error.message}}
    return web.json_response(body, status=error.status, headers=headers)
