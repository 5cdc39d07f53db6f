"""Activities `register_dataset` and `register_model`: versions of Azure ML's assets."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, refused_as_job_rejected
from handlers.platform.azure_ml_jobs import trial_of
from handlers.platform.clients import Clients
from handlers.platform.run_records import end_cancellation, read_metrics, read_model_hash
from handlers.platform.tags import all_versions, find_version, is_counted, reference_of, tags_of
from handlers.training.model_files import hash_of_model
from orchestrations.contracts.datasets import DataAsset, RegisterDataset
from orchestrations.contracts.runs import Model
from orchestrations.contracts.training import RegisterModel
from orchestrations.errors import JobRejected
from orchestrations.names import judged_folder

if TYPE_CHECKING:
    from azure.ai.ml.entities import Data
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.ai.ml.entities import Model as AzureMLModel

# A try fails only if another registration takes the version at the same moment.
VERSIONS_TRIED = 20


@activity
def register_dataset(clients: Clients, request: RegisterDataset) -> DataAsset:
    """Register the manifest's folder as a data asset of type `mltable`.

    The asset has the dataset's version, so that a second execution of this activity, a later
    attempt, or another pipeline on the same data finds the asset and adopts it.

    Raises:
        JobRejected: that version exists with another folder, or Azure ML refuses the asset.
    """
    name, version = request.pipeline.dataset.name, request.dataset.version
    path = manifest_uri(clients.settings.records_datastore, request.dataset.manifest_path)
    asset = if_found(clients.ml.data.get, name, version)
    if asset is None:
        try:
            with refused_as_job_rejected(f"register data asset {name}:{version}"):
                asset = _create_data(clients, _describe_data(request, path))
        except JobRejected:
            # Another execution was faster.
            asset = if_found(clients.ml.data.get, name, version)
            if asset is None:
                raise
    if not same_folder(str(asset.path), path):
        raise JobRejected(
            f"data asset {name}:{version} exists already and is {asset.path}, not {path}: give "
            f"pipeline {request.pipeline.name} another dataset.name"
        )
    return DataAsset(name=name, version=version)


def manifest_uri(datastore: str, manifest_path: str) -> str:
    """The short datastore URI of a manifest's folder.

    https://learn.microsoft.com/azure/machine-learning/reference-yaml-core-syntax
    """
    return f"azureml://datastores/{datastore}/paths/{manifest_path.strip('/')}/"


def same_folder(left: str, right: str) -> bool:
    """Whether two datastore URIs of this workspace name the same folder.

    The service returns the long form (`azureml://subscriptions/…/datastores/…`) for the short form,
    with or without a trailing slash.
    """
    return _path_in_workspace(left) == _path_in_workspace(right)


def _path_in_workspace(uri: str) -> str:
    return uri.rpartition("datastores/")[2].rstrip("/")


def _create_data(clients: Clients, asset: Data) -> Data:
    # Skip the SDK's validation of a file that Landfall wrote itself: it reads the file from the
    # account's public host name and the schema from the internet, with over a minute of retries if
    # either is unreachable. Change a copy, since others share the client.
    operations: Any = copy.copy(clients.ml.data)
    operations._validate = _trust  # noqa: SLF001 - there is no public switch
    return operations.create_or_update(asset)


def _trust(_asset: Data) -> None:
    """Replace `DataOperations._validate`: the asset refers to no other URIs."""


def _describe_data(request: RegisterDataset, path: str) -> Data:
    from azure.ai.ml.entities import Data  # noqa: PLC0415 - see handlers.platform.clients

    dataset = request.dataset
    return Data(
        name=request.pipeline.dataset.name,
        version=dataset.version,
        type="mltable",
        path=path,
        description=f"{dataset.blobs} blobs of pipeline {request.pipeline.name}",
        tags={tags.PIPELINE: request.pipeline.name},
        properties={
            "landfall.blobs": str(dataset.blobs),
            "landfall.bytes": str(dataset.bytes),
            "landfall.frozen-at": dataset.frozen_at.isoformat(),
        },
    )


@activity
def register_model(clients: Clients, request: RegisterModel) -> Model:
    """Register the model in the job's `results/model/`, with its lineage.

    A round of training on a dataset version registers at most one model version: a version with its
    tags (from this run before a crash, or from another attempt) is adopted. Versions are numbered
    1, 2, 3; a registration whose number is taken tries the next one.

    Raises:
        JobRejected: the job does not exist, files of the model have changed since its metrics were
            read, or Azure ML refuses the model.
    """
    name = request.pipeline.model.name
    metrics = read_metrics(clients, request.results)
    end_cancellation(clients, request.run)
    registered = all_versions(clients, name)
    for model in registered:
        if _is_of(model, request):
            return reference_of(model)
    first = 1 + max((int(str(each.version)) for each in registered if is_counted(each)), default=0)
    for version in range(first, first + VERSIONS_TRIED):
        model = find_version(clients, name, str(version))
        if model is None:
            model = _register(clients, request, metrics, str(version))
        if _is_of(model, request):
            return reference_of(model)
    raise JobRejected(
        f"models {name}:{first} to {name}:{first + VERSIONS_TRIED - 1} were all registered by "
        f"others while run {request.run} tried to: redrive it"
    )


def _is_of(model: AzureMLModel, request: RegisterModel) -> bool:
    """Whether a version is of the request's round of training."""
    found = tags_of(model)
    of_version = found.get(tags.DATASET_VERSION) == request.dataset.version
    return of_version and found.get(tags.ROUND, "1") == str(request.round)


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
    _check_files(clients, request, trial)
    try:
        with refused_as_job_rejected(f"register model {name}:{version}"):
            return clients.ml.models.create_or_update(
                _describe_model(request, metrics, version, job, results_of=trial or request.run)
            )
    except JobRejected:
        model = find_version(clients, name, version)
        if model is None:
            raise
        return model


def _check_files(clients: Clients, request: RegisterModel, trial: str | None) -> None:
    """Refuse a model whose files were written again since the metrics were read.

    Hours may lie in between, while people are asked.

    Raises:
        JobRejected: names the folder.
    """
    pipeline, container = request.pipeline.name, clients.default_datastore.container_name
    folder = judged_folder(pipeline, request.run, trial)
    judged = read_model_hash(clients, request.results)
    if judged not in (None, hash_of_model(clients.workspace_blobs, container, folder)):
        raise JobRejected(
            f"the files in {container}/{folder}model/ were written or deleted after the metrics of "
            f"run {request.run} were read: they are not the model that was judged. Find out who "
            "writes there, and redrive the run"
        )


def _describe_model(
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
    told = {
        "landfall.reason": request.reason,
        "landfall.difference": request.difference,
        f"{tags.APPROVAL}registration": request.approval,
        "landfall.environment": getattr(job, "environment", None),
    }
    lineage |= {name: str(text) for name, text in told.items() if text is not None}
    lineage |= {
        f"landfall.parameter.{name}": json.dumps(value)
        for name, value in request.parameters.items()
    }
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
