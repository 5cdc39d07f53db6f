"""Uploads of jobs' `code` folders, found by their hash; `assets` has their versions.

The SDK draws a new name for every upload and asks for the hash under that name, so the hash is
looked up across all names: the same folder is uploaded once.

https://learn.microsoft.com/rest/api/azureml/code-versions
"""

from __future__ import annotations

from uuid import uuid4

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import WORKSPACE, WORKSPACE_PATH, listing, path_name
from localazure.machinelearning.container_access import create_container, sas_token
from localazure.machinelearning.resources.assets import document_of
from localazure.machinelearning.store import Resource, list_resources
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
    return listing(request, [document_of(workspace, resource) for resource in found])


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
