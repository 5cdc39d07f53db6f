"""Activities `ensure_deployment`, `delete_deployments` and `record_rollout`.

A deployment is named after its model version, and after its scoring code if that was changed since
an earlier deployment of the version. It is tagged with its rollout, so that a rollout adopts what
it created before a crash, and never deletes a deployment that people created.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, assert_never

import yaml
from azure.core.exceptions import AzureError, HttpResponseError

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, is_refusal, reason, refused_as_job_rejected
from handlers.platform.azure_ml_jobs import cancel_job
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import digest_of_code
from handlers.platform.rollout_index import record_step, recorded_end
from handlers.platform.tags import find_version, tags_of
from handlers.rollout.endpoint_claims import admit_newer
from orchestrations.configuration.deploy import BatchDeploy, Deploy, EndpointKind
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.rollouts import (
    DeleteDeployments,
    DeploymentState,
    EnsureDeployment,
    RecordRollout,
)
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import CancelJob
from orchestrations.errors import RolloutImpossible, TransientError, shorten
from orchestrations.names import deployment_name

DELETE_WAIT_SECONDS = 90.0
LOG_LINES = 20
MESSAGE_LIMIT_CHARACTERS = 700
TAG_LIMIT_CHARACTERS = 256
CODE_HEX_DIGITS = 8
FAILED_STATES = frozenset({"Failed", "Canceled"})


@activity
def ensure_deployment(clients: Clients, request: EnsureDeployment) -> DeploymentState:
    """Create the deployment if it does not exist, and return its state without waiting.

    Raises:
        RolloutImpossible: Azure ML refuses it, its file is malformed, its name is taken, or the
            rollout has ended: nobody would delete what a late second execution creates.
    """
    deploy = request.request.pipeline.deploy
    assert deploy is not None, "only a pipeline with deploy has rollouts"
    existing = _find(clients, deploy.kind, deploy.endpoint, request.deployment)
    if existing is None:
        if recorded_end(clients, request.rollout) is not None:
            raise RolloutImpossible(f"rollout {request.rollout} has ended")
        _create(clients, request)
        return DeploymentState(state="provisioning")
    if not _is_of(existing, request.request.model):
        raise RolloutImpossible(
            f"endpoint {deploy.endpoint} has a deployment {request.deployment} that no rollout of "
            "this model made: delete it"
        )
    if existing.provisioning_state in FAILED_STATES:
        if tags_of(existing).get(tags.ROLLOUT) != request.rollout:  # of an earlier rollout
            _operations(clients, deploy.kind).begin_delete(request.deployment, deploy.endpoint)
            return DeploymentState(state="provisioning")
        log = _log(clients, deploy.kind, deploy.endpoint, request.deployment)
        message = f"deployment {request.deployment} could not be provisioned: {log}"
        return DeploymentState(state="failed", message=message)
    if existing.provisioning_state != "Succeeded":
        return DeploymentState(state="provisioning")
    record_step(clients, request.rollout, "testing", datetime.now(UTC))
    return DeploymentState(state="ready")


@activity
def delete_deployments(clients: Clients, request: DeleteDeployments) -> Done:
    """Delete the deployments that rollouts created; deployments of people stay."""
    if request.smoke_job is not None:
        cancel_job(clients, CancelJob(job=request.smoke_job))
    for name in request.deployments:
        found = _find(clients, request.kind, request.endpoint, name)
        if found is None or tags.ROLLOUT not in tags_of(found):
            continue
        operation = _operations(clients, request.kind).begin_delete(name, request.endpoint)
        operation.wait(DELETE_WAIT_SECONDS / len(request.deployments))
        if not operation.done():
            raise TransientError(f"deployment {name} is still being deleted")
    return Done()


@activity
def record_rollout(clients: Clients, request: RecordRollout) -> Done:
    """Record the outcome, tag the model with it, and tag the serving version as in service.

    A rolled-back model becomes a challenger: the next model is not compared with it. A model that
    is live is no challenger, and is not rolled back.

    Raises:
        JobRejected: Azure ML refuses the tags.
    """
    if request.outcome == "live":
        admit_newer(clients, request.endpoint, request.rollout)
    name = request.model.name
    serving = None
    if request.serving is not None:
        found = _find(clients, request.kind, request.endpoint, request.serving)
        # …/models/<name>/versions/<version>
        parts = str(found.model).split("/") if found is not None else []
        serving = parts[-1] if parts[-4:-1] == ["models", name, "versions"] else None
    for listed in if_found(lambda: list(clients.ml.models.list(name))) or []:
        before = tags_of(listed)
        after = _tags_after(
            before, request, str(listed.version), is_serving=str(listed.version) == serving
        )
        model = find_version(clients, name, str(listed.version)) if after != before else None
        if model is not None:
            model.tags = after
            with refused_as_job_rejected(f"tag model {name}:{listed.version}"):
                clients.ml.models.create_or_update(model)
    return Done()


def _tags_after(
    before: Mapping[str, str], request: RecordRollout, version: str, *, is_serving: bool
) -> dict[str, str]:
    """The tags of a version after a rollout. Pure."""
    after = {key: value for key, value in before.items() if key != tags.IN_SERVICE}
    if is_serving:
        if before.get(tags.IN_SERVICE) != "true":
            # A deployment puts it in service: an earlier promotion by a person has no meaning.
            after.pop(tags.IN_SERVICE_SINCE, None)
        after[tags.IN_SERVICE] = "true"
    if version == request.model.version:
        after |= {tags.ROLLOUT: request.rollout, tags.ROLLOUT_OUTCOME: request.outcome}
        after |= {
            f"{tags.APPROVAL}{step}": shorten(told, TAG_LIMIT_CHARACTERS)
            for step, told in request.approvals.items()
        }
        match request.outcome:
            case "rolled_back" if is_serving:
                pass  # its code was at fault: the model serves with the code from before
            case "rolled_back":
                after[tags.ROLE] = tags.CHALLENGER
            case "live":
                after.pop(tags.ROLE, None)
                after.pop(tags.ROLLED_BACK_AT, None)
            case "superseded" | "failed":
                pass
            case _:
                assert_never(request.outcome)
    return after


def check_deployment(clients: Clients, kind: EndpointKind, endpoint: str, name: str) -> None:
    """Check that a deployment exists.

    Raises:
        RolloutImpossible: it does not, or its endpoint does not.
    """
    if _find(clients, kind, endpoint, name) is None:
        raise RolloutImpossible(f"deployment {name} of endpoint {endpoint} was deleted")


@dataclass(frozen=True)
class DeploymentChoice:
    """The deployment that gets the traffic."""

    name: str
    ready: Collection[str]
    """The deployments of the model that can get traffic now."""


def deployments_of(clients: Clients, deploy: Deploy, model: Model) -> Mapping[str, str | None]:
    """The deployments of a model that rollouts made and that can get traffic → their code."""
    listed = if_found(lambda: list(_operations(clients, deploy.kind).list(deploy.endpoint))) or []
    return {
        str(each.name): tags_of(each).get(tags.SCORING_CODE)
        for each in listed
        if each.provisioning_state == "Succeeded" and _is_of(each, model)
    }


def choose_deployment(
    clients: Clients, pipeline: Pipeline, model: Model, *, any_code: bool
) -> DeploymentChoice:
    """The deployment for a rollout that a person requests: an existing one, or a new one.

    If the scoring code, the environment or the nodes have changed since, the old deployment is not
    used again. A new one is created next to it; its name has the hash of the three.

    Args:
        clients: the app's.
        pipeline: it has `deploy`.
        model: the version.
        any_code: whether a deployment with other code is accepted, as when traffic must move back.
    """
    deploy = pipeline.deploy
    assert deploy is not None, "callers check it"
    existing = deployments_of(clients, deploy, model)
    code = _scoring_code(clients, pipeline)
    same = [name for name, its in existing.items() if its == code or any_code]
    if same or not existing or code is None:
        return DeploymentChoice(max(same, default=deployment_name(model.version)), existing)
    return DeploymentChoice(f"{deployment_name(model.version)}-{code}", existing)


def _scoring_code(clients: Clients, pipeline: Pipeline) -> str | None:
    """A hash of a deployment's file, code and nodes; None if they cannot be read."""
    deploy = pipeline.deploy
    assert deploy is not None, "callers check it"
    file = clients.settings.pipelines_folder / pipeline.name / deploy.deployment
    try:
        content = [file.read_text("utf-8"), digest_of_code(file), _nodes(deploy)]
    except (OSError, ValueError, yaml.YAMLError):
        return None  # the rollout says what is wrong with it
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:CODE_HEX_DIGITS]


def _is_of(deployment: Any, model: Model) -> bool:
    """Whether a rollout made the deployment for this model."""
    tagged = tags_of(deployment)
    return tags.ROLLOUT in tagged and tagged.get(tags.MODEL) == f"{model.name}:{model.version}"


def _create(clients: Clients, request: EnsureDeployment) -> None:
    requested = request.request
    deploy, model = requested.pipeline.deploy, requested.model
    assert deploy is not None, "see ensure_deployment"
    file = clients.settings.pipelines_folder / requested.pipeline.name / deploy.deployment
    overrides = [
        {"name": request.deployment},
        {"endpoint_name": deploy.endpoint},
        {"model": f"azureml:{model.name}:{model.version}"},
        *_nodes(deploy),
        {
            "tags": {
                tags.ROLLOUT: request.rollout,
                tags.PIPELINE: requested.pipeline.name,
                tags.RUN: requested.run,
                tags.MODEL: f"{model.name}:{model.version}",
                tags.SCORING_CODE: _scoring_code(clients, requested.pipeline) or "",
            }
        },
    ]
    try:
        deployment = _load(deploy.kind, file, overrides)
        _operations(clients, deploy.kind).begin_create_or_update(deployment)
    except HttpResponseError as error:
        if error.status_code == 409:  # noqa: PLR2004 - another execution of this activity made it
            return
        if is_refusal(error):
            raise RolloutImpossible(f"deployment {request.deployment}: {reason(error)}") from error
        raise
    except AzureError as error:
        if is_refusal(error):
            raise RolloutImpossible(f"{file}: {reason(error)}") from error
        raise
    except OSError as error:
        raise RolloutImpossible(f"{file}: cannot be read: {error.strerror}") from error


def _load(kind: EndpointKind, file: Path, overrides: list[dict[str, Any]]) -> Any:
    from azure.ai.ml import load_online_deployment  # noqa: PLC0415 - see handlers.platform.clients

    # The SDK's public `load_batch_deployment` does not know `type: model` of CLI v2.
    from azure.ai.ml.entities._load_functions import load_model_batch_deployment  # noqa: PLC0415

    load = load_model_batch_deployment if kind == "batch" else load_online_deployment
    try:
        return load(file, params_override=overrides)
    except Exception as error:  # the SDK raises marshmallow's, its own and built-in ones
        raise RolloutImpossible(
            f"{file} is not a deployment ({kind}) that Azure ML takes: {shorten(str(error))}"
        ) from error


def _nodes(deploy: Deploy) -> list[dict[str, Any]]:
    """The instance type and count of a deployment's file."""
    if isinstance(deploy, BatchDeploy):
        return [
            {"compute": f"azureml:{deploy.compute}"},
            {"resources.instance_count": deploy.instance_count},
        ]
    return [{"instance_type": deploy.instance_type}, {"instance_count": deploy.instance_count}]


def _operations(clients: Clients, kind: EndpointKind) -> Any:
    return clients.ml.batch_deployments if kind == "batch" else clients.ml.online_deployments


def _find(clients: Clients, kind: EndpointKind, endpoint: str, name: str) -> Any | None:
    return if_found(_operations(clients, kind).get, name, endpoint)


def _log(clients: Clients, kind: EndpointKind, endpoint: str, name: str) -> str:
    if kind == "batch":
        return "batch deployments have no log; the activity log of the endpoint says why"
    try:
        log = clients.ml.online_deployments.get_logs(name, endpoint, lines=LOG_LINES)
    except AzureError as error:
        return f"its log cannot be read ({type(error).__name__})"
    lines = log.splitlines()
    # Last lines first: they say most in a traceback, and `shorten` cuts the end.
    return shorten(" | ".join(reversed(lines)), MESSAGE_LIMIT_CHARACTERS)
