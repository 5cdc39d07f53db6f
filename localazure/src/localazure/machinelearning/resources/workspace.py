"""The workspace, its discovery, and the subscription's quota."""

from __future__ import annotations

from collections import Counter
from typing import Any

from aiohttp import web

from localazure.machinelearning.addresses import PROVIDER
from localazure.machinelearning.arm import ROLE_ASSIGNMENTS, TOKENS, WORKSPACE, WORKSPACE_PATH
from localazure.machinelearning.client_settings import CLOUD_NAME, METADATA_PATH, TOKEN_PATH
from localazure.machinelearning.compute.clusters import list_clusters, vcpus_of
from localazure.machinelearning.configuration import LOW_PRIORITY_QUOTA
from localazure.machinelearning.errors import ArmError, invalid
from localazure.machinelearning.jobs.store import list_nodes
from localazure.machinelearning.jobs.tracking import NO_SERVER
from localazure.runtime.environment import LOOPBACK, Environment
from localazure.runtime.identity import APP, client_id_of, principal_of
from localazure.runtime.roles import RoleAssignments

routes = web.RouteTableDef()
identity_routes = web.RouteTableDef()

LOCATION_PATH = f"/subscriptions/{{subscription}}/providers/{PROVIDER}/locations/{{location}}"


@routes.get(METADATA_PATH)
async def get_metadata(request: web.Request) -> web.Response:
    """Return the cloud metadata: one cloud, this server."""
    workspace = request.app[WORKSPACE]
    environment = workspace.environment
    cloud = {
        "name": CLOUD_NAME,
        "portal": environment.azure_ml_url,
        "resourceManager": environment.azure_ml_url,
        "authentication": {
            "loginEndpoint": environment.azure_ml_url,
            "audiences": [environment.azure_ml_url],
        },
        "suffixes": {
            "storage": storage_suffix(environment, workspace.configuration.storage_account)
        },
    }
    return web.json_response([cloud])


@routes.get("/discovery/workspaces/{workspace}")
async def get_discovery(request: web.Request) -> web.Response:
    """Return the base URLs of the workspace's services: all are this server."""
    url = request.app[WORKSPACE].environment.azure_ml_url
    return web.json_response(
        dict.fromkeys(("api", "history", "pipelines", "experimentation", "catalog"), url)
    )


@routes.get(WORKSPACE_PATH)
async def get_workspace(request: web.Request) -> web.Response:
    """The workspace."""
    workspace = request.app[WORKSPACE]
    environment = workspace.environment
    return web.json_response(
        {
            "id": workspace.id,
            "name": environment.workspace,
            "type": f"{PROVIDER}/workspaces",
            "location": environment.location,
            "identity": {"type": "SystemAssigned"},
            "properties": {
                "friendlyName": environment.workspace,
                "workspaceId": environment.subscription_id,
                "discoveryUrl": (
                    f"{environment.azure_ml_url}/discovery/workspaces/{environment.workspace}"
                ),
                "mlFlowTrackingUri": workspace.configuration.mlflow_server or NO_SERVER,
                "provisioningState": "Succeeded",
                "publicNetworkAccess": "Enabled",
            },
        }
    )


@routes.get(f"{LOCATION_PATH}/vmSizes")
async def list_vm_sizes(request: web.Request) -> web.Response:
    """List the VM sizes of clusters and of the quota; each size is its own family."""
    workspace = request.app[WORKSPACE]
    sizes = {cluster.vm_size for cluster in list_clusters(workspace.database.read)} - {""}
    cluster_sizes = {size.lower() for size in sizes}
    sizes |= {size for size in workspace.configuration.quota if size not in cluster_sizes}
    documents: list[dict[str, Any]] = [
        {
            "name": size,
            "family": size.lower(),
            "vCPUs": vcpus_of(size),
            "lowPriorityCapable": True,
            "supportedComputeTypes": ["AmlCompute"],
        }
        for size in sorted(sizes)
    ]
    return web.json_response({"value": documents})


@routes.get(f"{LOCATION_PATH}/usages")
async def list_usages(request: web.Request) -> web.Response:
    """List the used and the allowed vCPUs of each quota: of VM sizes, and of low priority."""
    workspace = request.app[WORKSPACE]
    query = workspace.database.read
    clusters = {cluster.name: cluster for cluster in list_clusters(query)}
    used = Counter[str]()
    for node in list_nodes(query):
        if node.cluster in clusters:
            used[clusters[node.cluster].quota] += clusters[node.cluster].vcpus
    usages: list[dict[str, Any]] = [
        {
            "id": f"{request.path}/{name}",
            "type": f"{PROVIDER}/vmFamily/usages",
            "unit": "Count",
            "currentValue": used[name],
            "limit": limit if name == LOW_PRIORITY_QUOTA else limit * vcpus_of(name),
            "name": {"value": name, "localizedValue": f"{name} vCPUs"},
        }
        for name, limit in workspace.configuration.quotas.items()
    ]
    return web.json_response({"value": usages})


@identity_routes.get(TOKEN_PATH)
async def get_token(request: web.Request) -> web.Response:
    """Issue a token to a client with the identity header.

    All identities are user-assigned, like the deployed app's identity. If the app has a table of
    roles, a request must therefore select an identity by its `client_id`.
    """
    workspace = request.app[WORKSPACE]
    # App Service would return 400, which the SDK reports as a missing identity.
    if request.headers.get("X-IDENTITY-HEADER") != workspace.environment.keys.identity_header:
        raise ArmError(401, "Unauthorized", "X-IDENTITY-HEADER is not that of this localazure")
    resource = request.query.get("resource")
    if not resource:
        raise invalid("the query has no `resource`")
    client_id = request.query.get("client_id")
    principal = _principal(client_id, request.app[ROLE_ASSIGNMENTS])
    token, expires_on = request.app[TOKENS].issue(
        resource, now=workspace.clock_of_tokens(), principal=principal
    )
    return web.json_response(
        {
            "access_token": token,
            "expires_on": str(expires_on),
            "resource": resource,
            "token_type": "Bearer",
            "client_id": client_id_of(principal),
        }
    )


def storage_suffix(environment: Environment, account: str) -> str:
    """`suffixes.storage` of the cloud's metadata, for the workspace's account.

    The azure-ai-ml SDK builds `https://{account}.blob.{suffix}` for its own uploads and downloads,
    and ignores the datastore's endpoint. A laptop has no DNS entry for such a host. The suffix
    therefore continues the URL: `{account}.blob.localhost` becomes its user name (RFC 3986, section
    3.2.1), this machine the host, and the account the first part of the path, as in the URLs of
    storage emulators. The SDK keeps that path because the name does not contain `.blob.core.`.
    """
    return f"localhost@{LOOPBACK}:{environment.ports.blob_tls}/{account}"


def _principal(client_id: str | None, assignments: RoleAssignments) -> str:
    """The principal of a token request.

    Raises:
        ArmError: 400, as from App Service: the identity does not exist.
    """
    if client_id is None and not assignments.are_enforced:
        return APP
    principal = principal_of(client_id or "", assignments.principals)
    if principal is None:
        raise invalid(
            "Unable to load the proper Managed Identity. (There are user-assigned ones only: "
            "give its client id, as __clientId of a connection or AZURE_CLIENT_ID. Known are "
            f"{', '.join(sorted(assignments.principals))} of infra/roles.json.)"
        )
    return principal
