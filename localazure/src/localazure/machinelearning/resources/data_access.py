"""Datastores and data assets in the form that azureml-fsspec and mltable read.

Their native library (azureml-dataprep-rslex) resolves `azureml://` URIs with two services of the
workspace. These have no published specification; responses have the fields that the library reads.
"""

from __future__ import annotations

from aiohttp import web

from localazure.machinelearning.addresses import DatastorePath, parse_uri
from localazure.machinelearning.arm import (
    PRINCIPAL,
    ROLE_ASSIGNMENTS,
    WORKSPACE,
    WORKSPACE_PATH,
    find_resource,
    find_version,
)
from localazure.machinelearning.authorization import action_of, authorize
from localazure.machinelearning.resources.datastores import DATASTORES
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import LOOPBACK
from localazure.runtime.identity import APP

routes = web.RouteTableDef()

_DATA_TYPES = {"uri_file": "UriFile", "uri_folder": "UriFolder", "mltable": "MLTable"}


@routes.get(f"/datastore/v1.0{WORKSPACE_PATH}/{DATASTORES}/{{name}}")
async def get_datastore(request: web.Request) -> web.Response:
    """Return a datastore with its account's key; the caller needs the right to list secrets.

    The library forms `PROTOCOL://ACCOUNT.blob.ENDPOINT/CONTAINER`. A laptop has no DNS entry for
    that host, so the endpoint turns the host into a user name (RFC 3986, section 3.2.1).
    """
    workspace, datastore = request.app[WORKSPACE], find_resource(request, DATASTORES, "datastore")
    principal = request.get(PRINCIPAL, APP)
    authorize(
        principal,
        request.app[ROLE_ASSIGNMENTS].roles(principal, workspace.scope),
        action_of("POST", (DATASTORES, datastore.name, "listSecrets")),
        workspace.id,
    )
    account = datastore.properties["accountName"]
    section = {
        "accountName": account,
        "containerName": datastore.properties["containerName"],
        "endpoint": f"localhost@{LOOPBACK}:{workspace.environment.ports.blob_by_host}",
        "protocol": "http",
        "credentialType": "AccountKey",
        "credential": workspace.environment.storage_key(account),
    }
    return web.json_response(
        {"name": datastore.name, "dataStoreType": "AzureBlob", "azureStorageSection": section}
    )


@routes.get(f"/data/v1.0{WORKSPACE_PATH}/dataversion/{{name}}/versions/{{version}}")
async def get_data_version(request: web.Request) -> web.Response:
    """Return the URI and the type of a data asset."""
    workspace = request.app[WORKSPACE]
    asset = find_version(request, "data")
    kind = asset.properties.get("dataType", "uri_folder")
    document = {
        "assetId": f"{workspace.id}/data/{asset.name}/versions/{asset.version}",
        "dataContainerName": asset.name,
        "versionId": asset.version,
        "dataType": _DATA_TYPES.get(kind, kind),
        "dataUri": _long_form(workspace, asset.properties["dataUri"]),
    }
    return web.json_response({"dataVersion": document, "isV2": True})


def _long_form(workspace: Workspace, uri: str) -> str:
    """The URI with subscription, resource group and workspace, which the library requires."""
    address = parse_uri(uri)
    if not isinstance(address, DatastorePath):
        return uri
    environment = workspace.environment
    return (
        f"azureml://subscriptions/{environment.subscription_id}"
        f"/resourcegroups/{environment.resource_group}/workspaces/{environment.workspace}"
        f"/datastores/{address.datastore}/paths/{address.path}{'/' if uri.endswith('/') else ''}"
    )
