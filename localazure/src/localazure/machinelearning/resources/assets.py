"""Data, models, environments, components and code: named assets whose versions never change.

https://learn.microsoft.com/rest/api/azureml/data-versions, …/model-versions,
…/environment-versions, …/component-versions and …/code-versions
"""

from __future__ import annotations

import sqlite3
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import JobOutputPath, parse_uri
from localazure.machinelearning.arm import (
    WORKSPACE,
    WORKSPACE_PATH,
    arm_document,
    envelope,
    find_version,
    is_listed,
    listing,
    path_name,
    put_response,
    read_body,
)
from localazure.machinelearning.errors import immutable, invalid, not_found
from localazure.machinelearning.events import enqueue, model_registered
from localazure.machinelearning.jobs.resolution import ASSET_URIS, job_output_uri
from localazure.machinelearning.store import (
    Resource,
    delete_resource,
    get_resource,
    list_resources,
    next_version,
    put_resource,
)
from localazure.machinelearning.workspace import Workspace
from localazure.sqlite.query import querying

routes = web.RouteTableDef()

DEFINING = {
    "data": ("dataType", "dataUri"),
    "models": ("modelType", "modelUri"),
    "environments": ("image", "condaFile", "build"),
    "components": ("componentSpec",),
    "codes": ("codeUri",),
}
"""ARM collection → the properties that define a version and therefore cannot change."""

_PATH = f"{WORKSPACE_PATH}/{{collection:{'|'.join(DEFINING)}}}"
_VERSION_PATH = f"{_PATH}/{{name}}/versions/{{version}}"


@routes.get(_PATH)
async def list_containers(request: web.Request) -> web.Response:
    """List one entry per name, with the latest version."""
    workspace, collection = request.app[WORKSPACE], request.match_info["collection"]
    resources = list_resources(workspace.database.read, collection)
    names = dict.fromkeys(resource.name for resource in resources)
    containers = [_container(workspace, collection, name) for name in names]
    entries = [entry for entry in containers if is_listed(request, entry["properties"])]
    return listing(request, entries)


@routes.get(f"{_PATH}/{{name}}")
async def get_container(request: web.Request) -> web.Response:
    """Return the properties that all versions of a name share."""
    collection, name = request.match_info["collection"], path_name(request)
    return web.json_response(_container(request.app[WORKSPACE], collection, name))


@routes.put(f"{_PATH}/{{name}}")
async def put_container(request: web.Request) -> web.Response:
    """Archive or restore a name, or change its description and tags."""
    workspace = request.app[WORKSPACE]
    collection, name = request.match_info["collection"], path_name(request)
    body = await read_body(request)
    await workspace.database.write(
        lambda connection: put_resource(
            connection, collection, name, "", body, now=workspace.clock()
        )
    )
    return web.json_response(_container(workspace, collection, name))


@routes.get(f"{_PATH}/{{name}}/versions")
async def list_versions(request: web.Request) -> web.Response:
    """Versions of a name, newest first."""
    workspace = request.app[WORKSPACE]
    collection, name = request.match_info["collection"], path_name(request)
    resources = list_resources(workspace.database.read, collection, name)
    documents = [
        document_of(workspace, resource)
        for resource in resources
        if is_listed(request, resource.properties)
    ]
    return listing(request, documents)


@routes.get(_VERSION_PATH)
async def get_version(request: web.Request) -> web.Response:
    """One version."""
    version = find_version(request, request.match_info["collection"])
    return web.json_response(document_of(request.app[WORKSPACE], version))


@routes.put(_VERSION_PATH)
async def put_version(request: web.Request) -> web.Response:
    """Create a version, or change the properties that do not define it."""
    workspace = request.app[WORKSPACE]
    key = _key(request)
    body = await read_body(request)
    _check(key[0], f"{key[1]}:{key[2]}", body["properties"])

    def put(connection: sqlite3.Connection) -> tuple[Resource, bool]:
        resource, is_new = _put(connection, key, body, workspace.clock())
        if is_new and resource.collection == "models":
            enqueue(connection, model_registered(workspace.id, resource))
        return resource, is_new

    resource, is_new = await workspace.write(put)
    return put_response(document_of(workspace, resource), is_new=is_new)


@routes.delete(_VERSION_PATH)
async def delete_version(request: web.Request) -> web.Response:
    """Delete one version, but not its blobs."""
    key = _key(request)
    was_there = await request.app[WORKSPACE].database.write(
        lambda connection: delete_resource(connection, *key)
    )
    return web.Response(status=200 if was_there else 204)


def _put(
    connection: sqlite3.Connection, key: tuple[str, str, str], body: dict[str, Any], now: float
) -> tuple[Resource, bool]:
    """Create or change a version; raise if it exists with another definition.

    A job's output becomes the datastore's path, as on Azure: clients can download no other.
    """
    query = querying(connection)
    existing = get_resource(query, *key)
    field = ASSET_URIS.get(key[0])
    if field is not None:
        uri = body["properties"][field]
        address = parse_uri(uri, asset_kind=key[0])
        if isinstance(address, JobOutputPath):
            uri = job_output_uri(query, address)
            address = parse_uri(uri, asset_kind=key[0])
        # Clients send the path that they got back in full, with subscription and workspace.
        kept = None if existing is None else existing.properties[field]
        if kept is not None and parse_uri(kept, asset_kind=key[0]) == address:
            uri = kept
        body = {**body, "properties": {**body["properties"], field: uri}}
    if existing is not None:
        differences = [
            field
            for field in DEFINING[key[0]]
            if body["properties"].get(field) != existing.properties.get(field)
        ]
        if differences:
            raise immutable(key[0], f"{key[1]}:{key[2]}", differences)
    return put_resource(connection, *key, body, now=now)


def _key(request: web.Request) -> tuple[str, str, str]:
    collection = request.match_info["collection"]
    return collection, path_name(request), path_name(request, "version")


def _check(collection: str, label: str, properties: dict[str, Any]) -> None:
    field = ASSET_URIS.get(collection)
    if field is None:
        return
    uri = properties.get(field)
    if not isinstance(uri, str) or not uri:
        raise invalid(f"{collection} {label!r}: {field} is missing")
    parse_uri(uri, asset_kind=collection)


def document_of(workspace: Workspace, resource: Resource) -> dict[str, Any]:
    """The ARM document of a version."""
    defaults = {"isArchived": False, "isAnonymous": False}
    properties: dict[str, Any] = {**defaults, **resource.properties}
    if resource.collection == "models":
        properties["flavors"] = properties.get("flavors") or {}
    if resource.collection == "components":
        # Clients read name and version from here, also if the user's file has no version.
        spec: dict[str, Any] = resource.properties.get("componentSpec") or {}
        identity = {"name": resource.name, "version": resource.version}
        properties["componentSpec"] = {**spec, **identity}
    if resource.collection == "codes":  # the SDK sends the hash's version as a number
        own: dict[str, Any] = properties.get("properties") or {}
        properties["properties"] = {key: str(value) for key, value in own.items()}
    properties["provisioningState"] = "Succeeded"
    return envelope(workspace, resource, properties)


def _container(workspace: Workspace, collection: str, name: str) -> dict[str, Any]:
    """The container of a name: its stored document, if any, and a summary of its versions."""
    query = workspace.database.read
    versions = list_resources(query, collection, name)
    own = get_resource(query, collection, name)
    if own is None and not versions:
        raise not_found(collection, name)
    base = own or versions[-1]
    properties = {
        "isArchived": False,
        **(own.properties if own is not None else {}),
        "latestVersion": versions[0].version if versions else None,
        "nextVersion": next_version(query, collection, name),
    }
    if collection == "data" and versions:
        properties["dataType"] = versions[0].properties.get("dataType")
    return arm_document(workspace, f"{collection}/{name}", base, properties)
