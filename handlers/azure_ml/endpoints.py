"""Activities `ensure_endpoint`, `set_traffic` and `test_deployment`: a managed online endpoint.

https://learn.microsoft.com/azure/machine-learning/how-to-safely-rollout-online-endpoints
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.rest import HttpRequest

from handlers.azure_ml import tags
from handlers.azure_ml.errors import is_refusal, reason
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import (
    EndpointTraffic,
    EnsureEndpoint,
    SetTraffic,
    TestDeployment,
)
from orchestrations.errors import DeploymentRejected, TransientError, shorten

if TYPE_CHECKING:
    from azure.ai.ml.entities import ManagedOnlineEndpoint

CHANGE_WAIT_SECONDS = 90.0
# https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes
MODEL_FAULTS = frozenset({400, 405, 413, 415, 422, 424})
ERROR_LIMIT_CHARACTERS = 500


@activity
def ensure_endpoint(clients: Clients, request: EnsureEndpoint) -> EndpointTraffic:
    """The traffic of an endpoint, which is made, with keys, where there is none.

    Raises:
        DeploymentRejected: Azure ML refuses the endpoint.
    """
    endpoint = _find(clients, request.endpoint)
    if endpoint is None:
        from azure.ai.ml.entities import ManagedOnlineEndpoint  # noqa: PLC0415 - see handlers.configuration.clients

        endpoint = ManagedOnlineEndpoint(
            name=request.endpoint, auth_mode="key", tags={tags.PIPELINE: request.pipeline}
        )
        _put(clients, endpoint)
        return EndpointTraffic()
    return _traffic_of(endpoint)


@activity
def set_traffic(clients: Clients, request: SetTraffic) -> Done:
    """Set live and mirror traffic, in one change; nothing happens where both are set already.

    Raises:
        DeploymentRejected: the endpoint is gone, or Azure ML refuses the traffic.
    """
    endpoint = _find(clients, request.endpoint)
    if endpoint is None:
        raise DeploymentRejected(f"endpoint {request.endpoint} was deleted")
    if _traffic_of(endpoint) != request.traffic:
        endpoint.traffic = dict(request.traffic.traffic)
        endpoint.mirror_traffic = dict(request.traffic.mirror)
        _put(clients, endpoint)
    return Done()


@activity
def test_deployment(clients: Clients, request: TestDeployment) -> Done:
    """Send the pipeline's smoke request to a deployment, past the endpoint's traffic.

    Raises:
        DeploymentRejected: the model does not answer it, or the file is not there.
        TransientError: the endpoint is out of reach, or busy.
    """
    deploy = request.pipeline.deploy
    if deploy is None or deploy.smoke_request is None:
        return Done()
    file = clients.settings.pipelines_folder / request.pipeline.name / deploy.smoke_request
    try:
        body = file.read_bytes()
    except OSError as error:
        raise DeploymentRejected(f"{file}: cannot be read: {error.strerror}") from error
    status, text = score(clients, request.endpoint, request.deployment, body)
    if status in MODEL_FAULTS:
        raise DeploymentRejected(
            f"deployment {request.deployment} answered the smoke request with {status}: {text}"
        )
    if status >= 400:  # noqa: PLR2004 - HTTP
        raise TransientError(f"deployment {request.deployment} answered with {status}: {text}")
    return Done()


test_deployment.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - pytest reads it


def score(clients: Clients, endpoint: str, deployment: str, body: bytes) -> tuple[int, str]:
    """Status and text of a scoring request to a deployment.

    Not by `online_endpoints.invoke`: it keeps its headers, the key among them, in one dictionary
    for all threads (azure-ai-ml 1.35).
    """
    uri = str(clients.ml.online_endpoints.get(endpoint).scoring_uri)
    credential: Any = clients.ml.online_endpoints.get_keys(endpoint)
    key = getattr(credential, "primary_key", None) or credential.access_token
    request = HttpRequest(
        "POST",
        uri,
        content=body,
        headers={
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "azureml-model-deployment": deployment,
        },
    )
    client: Any = PipelineClient(uri)
    with client:
        response = client.send_request(request, connection_timeout=10, read_timeout=60)
        return response.status_code, shorten(response.text(), ERROR_LIMIT_CHARACTERS)


def _find(clients: Clients, name: str) -> ManagedOnlineEndpoint | None:
    try:
        return cast("ManagedOnlineEndpoint", clients.ml.online_endpoints.get(name))
    except ResourceNotFoundError:
        return None


def _put(clients: Clients, endpoint: ManagedOnlineEndpoint) -> None:
    try:
        operation = clients.ml.online_endpoints.begin_create_or_update(endpoint)
        operation.wait(CHANGE_WAIT_SECONDS)
    except HttpResponseError as error:
        if error.status_code != 409 and is_refusal(error):  # noqa: PLR2004 - 409: it is being changed
            raise DeploymentRejected(f"endpoint {endpoint.name}: {reason(error)}") from error
        raise
    if not operation.done():
        raise TransientError(
            f"endpoint {endpoint.name} is still being changed after {CHANGE_WAIT_SECONDS:.0f} s"
        )


def _traffic_of(endpoint: ManagedOnlineEndpoint) -> EndpointTraffic:
    def shares(traffic: dict[str, Any] | None) -> dict[str, int]:
        return {name: int(share) for name, share in (traffic or {}).items() if int(share)}

    return EndpointTraffic(traffic=shares(endpoint.traffic), mirror=shares(endpoint.mirror_traffic))
