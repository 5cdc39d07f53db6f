"""Code assets: uploads of jobs' `code` folders, found by their hash.

The SDK draws a new name for every upload and asks for the hash under that name, so the hash is
looked up across all names: the same folder is uploaded once.

https://learn.microsoft.com/rest/api/azureml/code-versions
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath, parse_uri
from localazure.machinelearning.arm import (
    WORKSPACE,
    WORKSPACE_PATH,
    envelope,
    listing,
    path_name,
    read_body,
)
from localazure.machinelearning.container_access import create_container, sas_token
from localazure.machinelearning.errors import immutable, invalid, not_found
from localazure.machinelearning.store import (
    Resource,
    get_resource,
    list_resources,
    put_resource,
)
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import LOOPBACK

routes = web.RouteTableDef()

CODES = "codes"
_PATH = f"{WORKSPACE_PATH}/{CODES}/{{name}}/versions"


@routes.get(_PATH)
async def list_code_versions(request: web.Request) -> web.Response:
    """Versions of a name; with `hash`, versions of any name with that content."""
    workspace = request.app[WORKSPACE]
    wanted = request.query.get("hash")
    if wanted is None:
        found = list_resources(workspace.database.read, CODES, path_name(request))
    else:
        rows = workspace.database.read(
            "SELECT * FROM resource WHERE collection = ? "
            "AND json_extract(document, '$.properties.properties.hash_sha256') = ?",
            (CODES, wanted),
        )
        found = [Resource.from_row(row) for row in rows]
    return listing(request, [_document(workspace, resource) for resource in found])


@routes.get(f"{_PATH}/{{version}}")
async def get_code_version(request: web.Request) -> web.Response:
    """One version."""
    workspace = request.app[WORKSPACE]
    name, version = path_name(request), path_name(request, "version")
    resource = get_resource(workspace.database.read, CODES, name, version)
    if resource is None:
        raise not_found("code", f"{name}:{version}")
    return web.json_response(_document(workspace, resource))


@routes.post(f"{_PATH}/{{version}}/startPendingUpload")
async def start_pending_upload(request: web.Request) -> web.Response:
    """A new container to upload into, and a SAS for it.

    The container is made here, because the SDK's upload into a missing one never ends.
    """
    workspace = request.app[WORKSPACE]
    account = workspace.configuration.storage_account
    container = f"code-{uuid4().hex}"
    where = BlobPath(container, "", account)
    await create_container(workspace, where)
    sas = sas_token(workspace, where)
    blob_uri = f"http://{LOOPBACK}:{workspace.environment.ports.blob}/{account}/{container}"
    return web.json_response(
        {
            "pendingUploadId": container,
            "pendingUploadType": "TemporaryBlobReference",
            "blobReferenceForConsumption": {
                "blobUri": blob_uri,
                "storageAccountArmId": workspace.id,
                "credential": {"credentialType": "SAS", "sasUri": f"{blob_uri}?{sas}"},
            },
        }
    )


@routes.put(f"{_PATH}/{{version}}")
async def put_code_version(request: web.Request) -> web.Response:
    """Register an upload."""
    workspace = request.app[WORKSPACE]
    name, version = path_name(request), path_name(request, "version")
    body = await read_body(request)
    uri = body["properties"].get("codeUri")
    if not isinstance(uri, str) or not uri:
        raise invalid(f"code {name!r}: codeUri is missing")
    parse_uri(uri)
    existing = get_resource(workspace.database.read, CODES, name, version)
    if existing is not None and existing.properties["codeUri"] != uri:
        raise immutable("code", f"{name}:{version}", ["codeUri"])
    now = request.app[WORKSPACE].clock()
    resource = await workspace.database.write(
        lambda connection: put_resource(connection, CODES, name, version, body, now=now)
    )
    status = 201 if existing is None else 200
    return web.json_response(_document(workspace, resource), status=status)


def _document(workspace: Workspace, resource: Resource) -> dict[str, Any]:
    # The SDK sends the version of the hash as a number.
    own = {key: str(value) for key, value in (resource.properties.get("properties") or {}).items()}
    properties = {**resource.properties, "properties": own, "provisioningState": "Succeeded"}
    return envelope(workspace, resource, properties)
