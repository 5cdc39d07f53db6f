"""Datastores: named containers of the storage account, and their secrets.

https://learn.microsoft.com/rest/api/azureml/datastores
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import (
    WORKSPACE,
    WORKSPACE_PATH,
    envelope,
    find_resource,
    listing,
    path_name,
    put_response,
    read_body,
)
from localazure.machinelearning.configuration import DEFAULT_DATASTORE, Configuration
from localazure.machinelearning.container_access import create_container, sas_token
from localazure.machinelearning.errors import invalid
from localazure.machinelearning.store import (
    Resource,
    delete_resource,
    get_resource,
    list_resources,
    put_resource,
)
from localazure.machinelearning.workspace import Workspace

routes = web.RouteTableDef()

DATASTORES = "datastores"
_PATH = f"{WORKSPACE_PATH}/{DATASTORES}"


def put_configured(
    connection: sqlite3.Connection, configuration: Configuration, now: float
) -> None:
    """Make the built-in datastores and those of `azure-ml.json`, within a transaction."""
    for name, root in configuration.datastores.items():
        properties = {
            "datastoreType": "AzureBlob",
            "accountName": root.account,
            "containerName": root.container,
            "endpoint": "core.localhost",
            "protocol": "https",
            "credentials": {"credentialsType": "AccountKey"},
        }
        put_resource(connection, DATASTORES, name, "", {"properties": properties}, now=now)


@routes.get(_PATH)
async def list_datastores(request: web.Request) -> web.Response:
    """All datastores, or with `isDefault=true` the default one."""
    workspace = request.app[WORKSPACE]
    resources = list_resources(workspace.database.read, DATASTORES)
    if request.query.get("isDefault", "").lower() == "true":
        resources = [resource for resource in resources if resource.name == DEFAULT_DATASTORE]
    return listing(request, [_document(workspace, resource) for resource in resources])


@routes.get(f"{_PATH}/{{name}}")
async def get_datastore(request: web.Request) -> web.Response:
    """One datastore."""
    return web.json_response(_document(request.app[WORKSPACE], _find(request)))


@routes.put(f"{_PATH}/{{name}}")
async def put_datastore(request: web.Request) -> web.Response:
    """Create or replace one. Its secrets are not kept: the keys of local accounts are known."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    body = await read_body(request)
    properties: dict[str, Any] = body["properties"]
    if properties.get("datastoreType") != "AzureBlob":
        raise invalid(
            f"datastore {name!r}: datastoreType {properties.get('datastoreType')!r} is not "
            "covered; the local workspace has AzureBlob datastores"
        )
    missing = [key for key in ("accountName", "containerName") if not properties.get(key)]
    if missing:
        raise invalid(f"datastore {name!r}: {' and '.join(missing)} missing")
    kind = (properties.get("credentials") or {}).get("credentialsType", "None")
    kept = {**body, "properties": {**properties, "credentials": {"credentialsType": kind}}}
    is_new = get_resource(workspace.database.read, DATASTORES, name) is None
    now = request.app[WORKSPACE].clock()
    resource = await workspace.database.write(
        lambda connection: put_resource(connection, DATASTORES, name, "", kept, now=now)
    )
    return put_response(_document(workspace, resource), is_new=is_new)


@routes.delete(f"{_PATH}/{{name}}")
async def delete_datastore(request: web.Request) -> web.Response:
    """Delete one that is not built in; its container stays."""
    workspace = request.app[WORKSPACE]
    name = path_name(request)
    if name in workspace.configuration.datastores:
        raise invalid(f"datastore {name!r} belongs to the workspace and cannot be deleted")
    was_there = await workspace.database.write(
        lambda connection: delete_resource(connection, DATASTORES, name)
    )
    return web.Response(status=200 if was_there else 204)


@routes.post(f"{_PATH}/{{name}}/listSecrets")
async def list_secrets(request: web.Request) -> web.Response:
    """The account's key; or a SAS of the container.

    As on Azure, `expirableSecret` asks for a SAS. Its container is made, since the SDK is about
    to upload into it, and its upload into a missing one never ends.
    """
    workspace = request.app[WORKSPACE]
    properties = _find(request).properties
    where = BlobPath(properties["containerName"], "", properties["accountName"])
    body: dict[str, Any] = json.loads(await request.read() or b"{}")
    if not body.get("expirableSecret"):
        key = workspace.environment.storage_key(where.account)
        return web.json_response({"secretsType": "AccountKey", "key": key})
    await create_container(workspace, where)
    token = sas_token(workspace, where, delete=True)
    return web.json_response({"secretsType": "Sas", "sasToken": token})


def _find(request: web.Request) -> Resource:
    return find_resource(request, DATASTORES, "datastore")


def _document(workspace: Workspace, resource: Resource) -> dict[str, Any]:
    is_default = resource.name == DEFAULT_DATASTORE
    return envelope(workspace, resource, {**resource.properties, "isDefault": is_default})
