"""Activity `register_model`, and who the champion is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceNotFoundError

from handlers.azure_ml import tags
from handlers.azure_ml.errors import refused_as_job_rejected
from handlers.azure_ml.tags import tags_of
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.models import Model, RegisterModel
from orchestrations.errors import JobRejected
from orchestrations.names import model_version

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.ai.ml.entities import Model as AzureMLModel

# Versions are seconds: so many datasets of one model frozen in the same one are no coincidence.
VERSIONS_TRIED = 60


@dataclass(frozen=True, kw_only=True)
class ModelSummary:
    """A registered model, as far as a training job needs to know it."""

    version: str
    path: str
    """URI of its folder."""


@activity
def register_model(clients: Clients, request: RegisterModel) -> Model:
    """Register what the run's job left in `results/model/`, with its lineage.

    One dataset version registers at most one version of a model: if one with its tag is there
    (of this run before a crash, or of another attempt) that one is adopted. The version is the
    dataset's freeze time; if another dataset was frozen in the same second, the next integer.

    Raises:
        JobRejected: the job is gone, or Azure ML refuses the model.
    """
    name, dataset = request.pipeline.model.name, request.dataset
    first = model_version(dataset.frozen_at)
    for version in range(first, first + VERSIONS_TRIED):
        model = _find(clients, name, str(version))
        if model is None:
            model = _register(clients, request, str(version))
        if tags_of(model).get(tags.DATASET_VERSION) == dataset.version:
            return Model(name=name, version=str(version), path=str(model.path))
    raise JobRejected(
        f"models {name}:{first} to {name}:{first + VERSIONS_TRIED - 1} all exist and are of other "
        f"datasets than {dataset.version}"
    )


def find_champion(clients: Clients, model_name: str) -> ModelSummary | None:
    """The newest version of a model that Landfall registered; None before the first.

    Archive a version to take it out of the running: the one before it is the champion again.
    """
    try:
        return newest(clients.ml.models.list(model_name))
    except ResourceNotFoundError:
        return None


def newest(models: Iterable[AzureMLModel]) -> ModelSummary | None:
    """The model with the highest version among those that Landfall registered.

    What others registered under the name may have any layout, and any version.
    """
    ours = [
        model
        for model in models
        if tags.DATASET_VERSION in tags_of(model) and str(model.version).isdecimal()
    ]
    if not ours:
        return None
    champion = max(ours, key=lambda model: int(str(model.version)))
    return ModelSummary(version=str(champion.version), path=str(champion.path))


def _find(clients: Clients, name: str, version: str) -> AzureMLModel | None:
    try:
        return clients.ml.models.get(name, version)
    except ResourceNotFoundError:
        return None


def _register(clients: Clients, request: RegisterModel, version: str) -> AzureMLModel:
    """Create the version; or what somebody else created a moment before, whosever it is."""
    name = request.pipeline.model.name
    try:
        job = clients.ml.jobs.get(request.run)
    except ResourceNotFoundError as error:
        raise JobRejected(
            f"cannot register model {name}:{version}: its job {request.run} was deleted"
        ) from error
    try:
        with refused_as_job_rejected(f"register model {name}:{version}"):
            return clients.ml.models.create_or_update(_describe(request, version, job))
    except JobRejected:
        model = _find(clients, name, version)
        if model is None:
            raise
        return model


def _describe(request: RegisterModel, version: str, job: AzureMLJob) -> AzureMLModel:
    from azure.ai.ml.entities import Model as AzureMLModel  # noqa: PLC0415 - see handlers.configuration.clients

    pipeline, dataset = request.pipeline, request.dataset
    lineage = {
        "landfall.dataset": f"{pipeline.dataset.name}:{dataset.version}",
        "landfall.job": str(job.id or request.run),
        "landfall.code": str(getattr(job, "code", None) or ""),
        "landfall.frozen-at": dataset.frozen_at.isoformat(),
    }
    metrics = {f"metrics.{name}": repr(value) for name, value in sorted(request.metrics.items())}
    return AzureMLModel(
        name=pipeline.model.name,
        version=version,
        type="custom_model",
        # https://learn.microsoft.com/azure/machine-learning/how-to-manage-models
        path=f"azureml://jobs/{request.run}/outputs/results/paths/model/",
        description=f"Run {request.run}",
        tags={
            tags.RUN: request.run,
            tags.PIPELINE: pipeline.name,
            tags.DATASET_VERSION: dataset.version,
        },
        properties=lineage | metrics,
    )
