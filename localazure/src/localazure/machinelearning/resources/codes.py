"""Uploads of jobs' `code` folders, found by hash; `assets` serves their versions.

The SDK generates a new name for every upload, and looks up the hash under that name. The hash is
therefore searched in all names, so that a folder is uploaded once.

https://learn.microsoft.com/rest/api/azureml/code-versions
"""

from __future__ import annotations

from uuid import uuid4

from aiohttp import web

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.arm import WORKSPACE, WORKSPACE_PATH, listing, path_name
from localazure.machinelearning.resources.assets import document_of
from localazure.machinelearning.resources.datastores import create_container, sas_token
from localazure.machinelearning.store import Resource, list_resources
from localazure.runtime.environment import LOOPBACK

routes = web.RouteTableDef()

CODES = "codes"
_PATH = f"{WORKSPACE_PATH}/{CODES}/{{name}}/versions"


@routes.get(_PATH)
async def list_code_versions(request: web.Request) -> web.Response:
    """List the versions of a name; with `hash`, the versions of any name with that content."""
    workspace = request.app[WORKSPACE]
    digest = request.query.get("hash")
    if digest is None:
        resources = list_resources(workspace.database.read, CODES, path_name(request))
    else:
        rows = workspace.database.read(
            "SELECT * FROM resource WHERE collection = ? "
            "AND json_extract(document, '$.properties.properties.hash_sha256') = ?",
            (CODES, digest),
        )
        resources = [Resource.from_row(row) for row in rows]
    return listing(request, [document_of(workspace, resource) for resource in resources])


@routes.post(f"{_PATH}/{{version}}/startPendingUpload")
async def start_pending_upload(request: web.Request) -> web.Response:
    """Create a container for an upload, and return its SAS.

    The container must exist: the SDK's upload into a missing container never ends.
    """
    workspace = request.app[WORKSPACE]
    account = workspace.configuration.storage_account
    container = f"code-{uuid4().hex}"
    target = BlobPath(container, "", account)
    await create_container(workspace, target)
    sas = sas_token(workspace, target)
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
