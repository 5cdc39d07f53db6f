"""Activity `register_model`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, refused_as_job_rejected
from handlers.platform.clients import Clients
from handlers.platform.run_records import end_cancellation, read_metrics
from handlers.platform.tags import all_versions, find_version, is_counted, tags_of
from handlers.training.job_outputs import trial_of
from orchestrations.contracts.models import Model, RegisterModel
from orchestrations.errors import JobRejected

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.ai.ml.entities import Model as AzureMLModel

# A try fails only if another registration takes the version at the same moment.
VERSIONS_TRIED = 20


@activity
def register_model(clients: Clients, request: RegisterModel) -> Model:
    """Register the model in the job's `results/model/`, with its lineage.

    A round of training on a dataset version registers at most one model version: a version with its
    tags (from this run before a crash, or from another attempt) is adopted. Versions are numbered
    1, 2, 3; a registration whose number is taken tries the next one.

    Raises:
        JobRejected: the job does not exist, or Azure ML refuses the model.
    """
    name = request.pipeline.model.name
    metrics = read_metrics(clients, request.results)
    end_cancellation(clients, request.run)
    registered = all_versions(clients, name)
    for model in registered:
        if _is_of(model, request):
            return _reference(model)
    first = 1 + max((int(str(each.version)) for each in registered if is_counted(each)), default=0)
    for version in range(first, first + VERSIONS_TRIED):
        model = find_version(clients, name, str(version))
        if model is None:
            model = _register(clients, request, metrics, str(version))
        if _is_of(model, request):
            return _reference(model)
    raise JobRejected(
        f"models {name}:{first} to {name}:{first + VERSIONS_TRIED - 1} were all registered by "
        f"others while run {request.run} tried to: redrive it"
    )


def _is_of(model: AzureMLModel, request: RegisterModel) -> bool:
    """Whether a version is of the request's round of training."""
    found = tags_of(model)
    of_version = found.get(tags.DATASET_VERSION) == request.dataset.version
    return of_version and found.get(tags.ROUND, "1") == str(request.round)


def _reference(model: AzureMLModel) -> Model:
    return Model(name=str(model.name), version=str(model.version), path=str(model.path))


def _register(
    clients: Clients, request: RegisterModel, metrics: Mapping[str, float], version: str
) -> AzureMLModel:
    """Create the version, or return the one that another registration has just created."""
    name = request.pipeline.model.name
    job = if_found(clients.ml.jobs.get, request.run)
    if job is None:
        raise JobRejected(
            f"cannot register model {name}:{version}: its job {request.run} was deleted"
        )
    trial = trial_of(clients, job)
    try:
        with refused_as_job_rejected(f"register model {name}:{version}"):
            return clients.ml.models.create_or_update(
                _describe(request, metrics, version, job, results_of=trial or request.run)
            )
    except JobRejected:
        model = find_version(clients, name, version)
        if model is None:
            raise
        return model


def _describe(
    request: RegisterModel,
    metrics: Mapping[str, float],
    version: str,
    job: AzureMLJob,
    *,
    results_of: str,
) -> AzureMLModel:
    from azure.ai.ml.entities import Model as AzureMLModel  # noqa: PLC0415 - see handlers.platform.clients

    pipeline, dataset = request.pipeline, request.dataset
    lineage = {
        "landfall.dataset": f"{pipeline.dataset.name}:{dataset.version}",
        "landfall.job": str(job.id or request.run),
        "landfall.code": str(getattr(job, "code", None) or ""),
        "landfall.frozen-at": dataset.frozen_at.isoformat(),
        "landfall.results": request.results,
    }
    if request.reason is not None:
        lineage["landfall.reason"] = request.reason
    optional = {
        tags.ROUND: None if request.round == 1 else str(request.round),
        tags.CHAMPION: request.champion,
        tags.GAIN: None if request.gain is None else repr(request.gain),
        tags.ROLE: tags.CHALLENGER if request.challenger else None,
        tags.CONFIGURATION: request.configuration,
        tags.REDRIVEN_FROM: None if request.redrive is None else request.redrive.run,
        tags.TRACEPARENT: request.traceparent,
    }
    if request.redrive is not None:
        # Each change is a separate property, for people who search in the studio.
        changes = request.redrive.to_dict()
        lineage |= {
            f"landfall.redrive.{name}": value if isinstance(value, str) else json.dumps(value)
            for name, value in changes.items()
            if value is not None and name != "schema_version"
        }
    return AzureMLModel(
        name=pipeline.model.name,
        version=version,
        type="custom_model",
        # https://learn.microsoft.com/azure/machine-learning/how-to-manage-models
        path=f"azureml://jobs/{results_of}/outputs/results/paths/model/",
        description=f"Run {request.run}",
        tags={
            tags.RUN: request.run,
            tags.PIPELINE: pipeline.name,
            tags.DATASET_VERSION: dataset.version,
            **{name: value for name, value in optional.items() if value is not None},
        },
        properties=lineage
        | {f"metrics.{name}": repr(value) for name, value in sorted(metrics.items())},
    )
