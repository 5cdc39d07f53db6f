"""Activities `ensure_endpoint`, `set_traffic` and `test_deployment`: an online or batch endpoint.

A batch endpoint counts as sending 100 % of its traffic to its default deployment. A smoke job
scores one file before a new deployment becomes the default. Its name is derived from the
deployment's, so that a rollout finds its job after a crash.

https://learn.microsoft.com/azure/machine-learning/how-to-safely-rollout-online-endpoints
https://learn.microsoft.com/azure/machine-learning/how-to-access-data-batch-endpoints-jobs
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy
from azure.core.rest import HttpRequest

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, is_refusal, reason
from handlers.platform.azure_ml_jobs import cancel_job, diagnose_job, find_job_state
from handlers.platform.clients import Clients
from handlers.platform.manifests import MANIFEST_FILE, manifest_folder
from handlers.platform.rollout_index import record_traffic
from handlers.platform.tags import find_version, tags_of
from handlers.rollout.deployments import check_deployment
from handlers.rollout.endpoint_claims import holder_of
from orchestrations.configuration.deploy import BatchDeploy, EndpointKind
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.manifest import decode_line
from orchestrations.contracts.rollouts import (
    EndpointTraffic,
    EnsureEndpoint,
    SetTraffic,
    SmokeTest,
    TestDeployment,
)
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import CancelJob, DiagnoseJob
from orchestrations.errors import DeploymentRejected, RolloutImpossible, TransientError, shorten
from orchestrations.platform.waiting import ENDED
from orchestrations.rollout.decisions import main_deployment

CHANGE_WAIT_SECONDS = 90.0
# https://learn.microsoft.com/azure/machine-learning/how-to-troubleshoot-online-endpoints#http-status-codes
MODEL_FAULTS = frozenset({400, 405, 413, 415, 422, 424})
ERROR_LIMIT_CHARACTERS = 500
AUDIENCE = "https://ml.azure.com"
FIRST_BYTES = 16 * 1024
"""More than the first line of a manifest can have."""
MESSAGE_LIMIT_CHARACTERS = 600


@activity
def ensure_endpoint(clients: Clients, request: EnsureEndpoint) -> EndpointTraffic:
    """Create the endpoint if it does not exist, and return its traffic. Online ones use keys.

    Raises:
        RolloutImpossible: Azure ML refuses the endpoint.
    """
    from azure.ai.ml.entities import (  # noqa: PLC0415 - see handlers.platform.clients
        BatchEndpoint,
        ManagedOnlineEndpoint,
    )

    endpoint = _find(clients, request.kind, request.endpoint)
    if endpoint is not None:
        return _traffic_of(request.kind, endpoint)
    tagged = {tags.PIPELINE: request.pipeline}
    if request.kind == "batch":
        endpoint = BatchEndpoint(name=request.endpoint, tags=tagged)
    else:
        endpoint = ManagedOnlineEndpoint(name=request.endpoint, auth_mode="key", tags=tagged)
    _put(clients, request.kind, endpoint)
    return EndpointTraffic()


def read_traffic(clients: Clients, kind: EndpointKind, name: str) -> EndpointTraffic:
    """The traffic of an endpoint; empty if it does not exist."""
    endpoint = _find(clients, kind, name)
    return EndpointTraffic() if endpoint is None else _traffic_of(kind, endpoint)


@activity
def set_traffic(clients: Clients, request: SetTraffic) -> Done:
    """Set live and mirror traffic in one change, if they are not set, and record it for people.

    If the process dies in between, the activity is repeated.

    Raises:
        RolloutImpossible: the endpoint does not exist, or Azure ML refuses the traffic.
    """
    endpoint = _find(clients, request.kind, request.endpoint)
    if endpoint is None:
        raise RolloutImpossible(f"endpoint {request.endpoint} was deleted")
    if _traffic_of(request.kind, endpoint) != request.traffic:
        if request.kind == "batch":
            default = main_deployment(request.traffic)
            endpoint.defaults = None if default is None else {"deployment_name": default}
        else:
            endpoint.traffic = dict(request.traffic.traffic)
            endpoint.mirror_traffic = dict(request.traffic.mirror)
        _put(clients, request.kind, endpoint)
    rollout = holder_of(clients, request.endpoint)
    if rollout is not None:
        record_traffic(clients, rollout, request.traffic, at=datetime.now(UTC))
    return Done()


@activity
def test_deployment(clients: Clients, request: TestDeployment) -> SmokeTest:
    """Send the pipeline's smoke request directly to a deployment, whatever the traffic is.

    For a batch deployment, start a smoke job instead, without waiting for it.

    Raises:
        DeploymentRejected: the model does not answer the request, or its smoke job fails.
        RolloutImpossible: the deployment was deleted, or the request's file is missing.
        TransientError: the endpoint is unreachable or busy.
    """
    deploy = request.pipeline.deploy
    if deploy is not None:
        check_deployment(clients, deploy.kind, request.endpoint, request.deployment)
    if isinstance(deploy, BatchDeploy):
        return check_smoke_job(clients, request, deploy, now=datetime.now(UTC))
    if deploy is None or deploy.smoke_request is None:
        return SmokeTest()
    file = clients.settings.pipelines_folder / request.pipeline.name / deploy.smoke_request
    try:
        body = file.read_bytes()
    except OSError as error:
        raise RolloutImpossible(f"{file}: cannot be read: {error.strerror}") from error
    status, text = score(clients, request.endpoint, request.deployment, body)
    if status in MODEL_FAULTS:
        raise DeploymentRejected(
            f"deployment {request.deployment} answered the smoke request with {status}: {text}"
        )
    if status >= 400:  # noqa: PLR2004 - HTTP
        raise TransientError(f"deployment {request.deployment} answered with {status}: {text}")
    return SmokeTest()


test_deployment.__test__ = False  # pyright: ignore[reportFunctionMemberAccess] - pytest reads it


def score(clients: Clients, endpoint: str, deployment: str, body: bytes) -> tuple[int, str]:
    """Status and text of a scoring request to a deployment.

    Does not use `online_endpoints.invoke`, which keeps its headers, including the key, in one
    dictionary for all threads (azure-ai-ml 1.35).
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


def _operations(clients: Clients, kind: EndpointKind) -> Any:
    return clients.ml.batch_endpoints if kind == "batch" else clients.ml.online_endpoints


def _find(clients: Clients, kind: EndpointKind, name: str) -> Any | None:
    return if_found(_operations(clients, kind).get, name)


def _put(clients: Clients, kind: EndpointKind, endpoint: Any) -> None:
    try:
        operation = _operations(clients, kind).begin_create_or_update(endpoint)
        operation.wait(CHANGE_WAIT_SECONDS)
    except HttpResponseError as error:
        if error.status_code != 409 and is_refusal(error):  # noqa: PLR2004 - 409: it is being changed
            raise RolloutImpossible(f"endpoint {endpoint.name}: {reason(error)}") from error
        raise
    if not operation.done():
        raise TransientError(
            f"endpoint {endpoint.name} is still being changed after {CHANGE_WAIT_SECONDS:.0f} s"
        )


def _traffic_of(kind: EndpointKind, endpoint: Any) -> EndpointTraffic:
    if kind == "batch":
        default = getattr(endpoint.defaults, "deployment_name", None)
        return EndpointTraffic(traffic={default: 100} if default else {})

    def shares(traffic: dict[str, Any] | None) -> dict[str, int]:
        return {name: int(share) for name, share in (traffic or {}).items() if int(share)}

    return EndpointTraffic(traffic=shares(endpoint.traffic), mirror=shares(endpoint.mirror_traffic))


def check_smoke_job(
    clients: Clients, request: TestDeployment, deploy: BatchDeploy, *, now: datetime
) -> SmokeTest:
    """Start the smoke job if it does not exist, and return whether it has ended. Does not wait.

    Raises:
        DeploymentRejected: it failed, or did not end by the deadline.
        RolloutImpossible: Azure ML refuses it, or the model or its dataset's manifest is gone.
    """
    name = request.smoke_job
    assert name is not None, "a rollout to a batch endpoint names it"
    state = find_job_state(clients, name)
    if state is None:
        _start(clients, request, deploy, name)
        return SmokeTest(job=name)
    if state == "completed":
        return SmokeTest()
    if state not in ENDED:
        if request.deadline is None or now < request.deadline:
            return SmokeTest(job=name)
        cancel_job(clients, CancelJob(job=name))
        raise DeploymentRejected(
            f"smoke job {name} was not over after deploy.guards.smoke_minutes: "
            f"{deploy.guards.smoke_minutes:g} minutes"
        )
    found = diagnose_job(clients, DiagnoseJob(job=name))
    log = shorten(" | ".join(reversed(found.log)), MESSAGE_LIMIT_CHARACTERS)
    raise DeploymentRejected(f"smoke job {name} is {state}: {log or found.message or 'no log'}")


def _start(clients: Clients, request: TestDeployment, deploy: BatchDeploy, name: str) -> None:
    """Invoke the deployment directly, although it is not the default.

    Does not use `batch_endpoints.invoke`, which keeps its headers, including the deployment, in one
    dictionary for all threads and later calls (azure-ai-ml 1.35).
    """
    uri = deploy.smoke_data or _first_file(clients, request.pipeline, request.model)
    kind = "UriFolder" if uri.endswith("/") else "UriFile"
    scoring_uri = str(clients.ml.batch_endpoints.get(request.endpoint).scoring_uri)
    invocation = HttpRequest(
        "POST",
        scoring_uri,
        json={
            "properties": {
                "name": name,
                "inputData": {"smoke_data": {"jobInputType": kind, "uri": uri}},
                "errorThreshold": deploy.guards.failed_files,
            }
        },
        headers={"azureml-model-deployment": request.deployment},
    )
    authentication = BearerTokenCredentialPolicy(clients.credential, f"{AUDIENCE}/.default")
    client: Any = PipelineClient(scoring_uri, policies=[authentication])
    with client:
        response = client.send_request(invocation, connection_timeout=10, read_timeout=60)
        if response.status_code < 400:  # noqa: PLR2004 - HTTP
            _check_name(clients, name, str(response.json().get("name")))
            return
        response.read()
        error = HttpResponseError(response=response)
    if error.status_code == 409:  # noqa: PLR2004 - another execution of this activity started it
        return
    if is_refusal(error):
        raise RolloutImpossible(f"smoke job of {request.deployment}: {reason(error)}") from error
    raise error


def _check_name(clients: Clients, expected: str, name: str) -> None:
    """Refuse and cancel a job with another name: each poll would start one more."""
    if name != expected:
        cancel_job(clients, CancelJob(job=name))
        raise RolloutImpossible(f"Azure ML named the smoke job {name}, not {expected}")


def _first_file(clients: Clients, pipeline: Pipeline, model: Model | None) -> str:
    """The URL of the first file of the dataset that a model was trained on."""
    assert model is not None, "a rollout to a batch endpoint gives the model"
    registered = find_version(clients, model.name, model.version)
    if registered is None:
        raise RolloutImpossible(f"model {model.name}:{model.version} was deleted")
    version = tags_of(registered).get(tags.DATASET_VERSION)
    if version is None:
        raise RolloutImpossible(
            f"model {model.name}:{model.version} has no tag {tags.DATASET_VERSION}: name data in "
            "deploy.smoke_data"
        )
    manifest = f"{manifest_folder(pipeline.name, version)}/{MANIFEST_FILE}"
    download = if_found(clients.records.download_blob, manifest, offset=0, length=FIRST_BYTES)
    if download is None:
        raise RolloutImpossible(f"record {manifest} was deleted: name data in deploy.smoke_data")
    head = download.readall()
    path = f"{pipeline.source.prefix}{decode_line(head.splitlines()[0]).path}"
    return str(clients.blobs.get_blob_client(pipeline.source.container, path).url)
