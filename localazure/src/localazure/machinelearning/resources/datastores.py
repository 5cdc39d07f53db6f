"""Datastores: named containers of the storage account, and their secrets.

https://learn.microsoft.com/rest/api/azureml/datastores
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import (
    WORKSPACE,
    WORKSPACE_PATH,
    add_reads,
    envelope,
    find_resource,
    path_name,
    put_response,
    read_body,
    read_object,
)
from localazure.machinelearning.configuration import (
    BUILT_IN_DATASTORES,
    DEFAULT_DATASTORE,
    Configuration,
)
from localazure.machinelearning.data.blobs import BlobStore, retry_while_unavailable
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.store import Resource, delete_resource, put_resource
from localazure.machinelearning.workspace import Workspace
from localazure.storage_client.endpoint import StorageError
from localazure.storage_client.shared_access import service_sas

logger = logging.getLogger(__name__)
routes = web.RouteTableDef()

SAS_LIFETIME = timedelta(hours=24)
CLOCK_SKEW = timedelta(minutes=5)
STORAGE_PATIENCE_SECONDS = 15.0

DATASTORES = "datastores"
_PATH = f"{WORKSPACE_PATH}/{DATASTORES}"


def put_configured(
    connection: sqlite3.Connection, configuration: Configuration, now: float
) -> None:
    """Create the built-in datastores and those of `azure-ml.json`, within a transaction."""
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


@routes.put(f"{_PATH}/{{name}}")
async def put_datastore(request: web.Request) -> web.Response:
    """Create or replace a datastore, without its secrets: local accounts have known keys."""
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
    document = {**body, "properties": {**properties, "credentials": {"credentialsType": kind}}}
    resource, is_new = await workspace.database.write(
        lambda connection: put_resource(
            connection, DATASTORES, name, "", document, now=workspace.clock()
        )
    )
    return put_response(_document(request, resource), is_new=is_new)


@routes.delete(f"{_PATH}/{{name}}")
async def delete_datastore(request: web.Request) -> web.Response:
    """Delete a datastore that is not built in, but not its container."""
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
    """Return the account's key, or a SAS of the container if `expirableSecret` is set.

    With the SAS, the SDK uploads into the container. The container is created first, because the
    SDK's upload into a missing container never ends.
    """
    workspace = request.app[WORKSPACE]
    properties = find_resource(request, DATASTORES, "datastore").properties
    target = BlobPath(properties["containerName"], "", properties["accountName"])
    body = await read_object(request)
    if not body.get("expirableSecret"):
        key = workspace.environment.storage_key(target.account)
        return web.json_response({"secretsType": "AccountKey", "key": key})
    await create_container(workspace, target)
    token = sas_token(workspace, target, delete=True)
    return web.json_response({"secretsType": "Sas", "sasToken": token})


def sas_token(workspace: Workspace, target: BlobPath, *, delete: bool = False) -> str:
    """A SAS to read, list and write, without a leading question mark.

    Args:
        workspace: its clock sets the start and the expiry of the SAS.
        target: a path in the container.
        delete: whether the SAS also allows to delete blobs.
    """
    now = datetime.fromtimestamp(workspace.clock(), tz=UTC)
    return service_sas(
        account=target.account,
        key=workspace.environment.storage_key(target.account),
        container=target.container,
        permissions="racwdl" if delete else "racwl",
        start=now - CLOCK_SKEW,
        expiry=now + SAS_LIFETIME,
    )


async def create_built_in_containers(workspace: Workspace) -> None:
    """Create the containers of the built-in datastores, as Azure does with a workspace.

    Without storage they are created when they are first used.
    """
    try:
        for name in BUILT_IN_DATASTORES:
            await create_container(workspace, workspace.configuration.datastores[name])
    except ArmError as error:
        logger.warning("the containers of the built-in datastores: %s", error)


async def create_container(workspace: Workspace, target: BlobPath) -> None:
    """Create the container of a path unless it exists.

    Raises:
        ArmError: 503, storage is unavailable.
    """
    with contextlib.closing(BlobStore(workspace.environment)) as store:
        create = partial(store.ensure_container, target)
        try:
            await asyncio.to_thread(
                retry_while_unavailable, create, give_up_after_seconds=STORAGE_PATIENCE_SECONDS
            )
        except StorageError as error:
            raise ArmError(503, "StorageUnavailable", f"no storage: {error}") from error


def _document(request: web.Request, resource: Resource) -> dict[str, Any]:
    properties = {**resource.properties, "isDefault": resource.name == DEFAULT_DATASTORE}
    return envelope(request.app[WORKSPACE], resource, properties)


def _is_shown(request: web.Request, resource: Resource) -> bool:
    """Whether a list includes the datastore: `isDefault=true` selects the default datastore."""
    only_default = request.query.get("isDefault", "").lower() == "true"
    return not only_default or resource.name == DEFAULT_DATASTORE


add_reads(routes, DATASTORES, "datastore", _document, _is_shown)
