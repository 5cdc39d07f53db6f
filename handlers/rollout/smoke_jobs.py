"""The smoke job of a new batch deployment: scores one file before it becomes the default.

The job's name is derived from the deployment's, so that a rollout finds its job after a crash.
https://learn.microsoft.com/azure/machine-learning/how-to-access-data-batch-endpoints-jobs
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from azure.core import PipelineClient
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.policies import BearerTokenCredentialPolicy
from azure.core.rest import HttpRequest

from handlers.platform import tags
from handlers.platform.azure_ml import if_found, is_refusal, reason
from handlers.platform.azure_ml_jobs import cancel_job, diagnose_job, find_job_state
from handlers.platform.clients import Clients
from handlers.platform.manifests import MANIFEST_FILE, manifest_folder
from handlers.platform.tags import find_version, tags_of
from orchestrations.configuration.deploy import BatchDeploy
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.jobs import CancelJob, DiagnoseJob
from orchestrations.contracts.manifest import decode_line
from orchestrations.contracts.models import Model
from orchestrations.contracts.rollouts import SmokeTest, TestDeployment
from orchestrations.errors import DeploymentRejected, RolloutImpossible, shorten
from orchestrations.platform.waiting import ENDED

AUDIENCE = "https://ml.azure.com"
FIRST_BYTES = 16 * 1024
"""More than the first line of a manifest can have."""
MESSAGE_LIMIT_CHARACTERS = 600


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


def _check_name(clients: Clients, asked: str, given: str) -> None:
    """Refuse and cancel a job with another name: each poll would start one more."""
    if given != asked:
        cancel_job(clients, CancelJob(job=given))
        raise RolloutImpossible(f"Azure ML named the smoke job {given}, not {asked}")


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
    found = if_found(clients.records.download_blob, manifest, offset=0, length=FIRST_BYTES)
    if found is None:
        raise RolloutImpossible(f"record {manifest} was deleted: name data in deploy.smoke_data")
    head = found.readall()
    path = f"{pipeline.source.prefix}{decode_line(head.splitlines()[0]).path}"
    return str(clients.blobs.get_blob_client(pipeline.source.container, path).url)
