"""Activity `register_dataset`: registers a frozen manifest as a version of a data asset."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, refused_as_job_rejected
from handlers.platform.clients import Clients
from orchestrations.contracts.datasets import DataAsset, RegisterDataset
from orchestrations.errors import JobRejected

if TYPE_CHECKING:
    from azure.ai.ml.entities import Data


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
                asset = _create(clients, _describe(request, path))
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
    return _below_workspace(left) == _below_workspace(right)


def _below_workspace(uri: str) -> str:
    return uri.rpartition("datastores/")[2].rstrip("/")


def _create(clients: Clients, asset: Data) -> Data:
    # Skip the SDK's validation of a file that Landfall wrote itself: it reads the file from the
    # account's public host name and the schema from the internet, with over a minute of retries if
    # either is unreachable. Change a copy, since others share the client.
    operations: Any = copy.copy(clients.ml.data)
    operations._validate = _trust  # noqa: SLF001 - there is no public switch
    return operations.create_or_update(asset)


def _trust(_asset: Data) -> None:
    """Replace `DataOperations._validate`: the asset refers to no other URIs."""


def _describe(request: RegisterDataset, path: str) -> Data:
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
