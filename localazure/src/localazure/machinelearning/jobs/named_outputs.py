"""The outputs of jobs: their URIs, and the assets that named ones become when the job completes."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from localazure.machinelearning.addresses import DEFAULT_ARTIFACTS, BlobPath
from localazure.machinelearning.configuration import ARTIFACT_DATASTORE, DEFAULT_DATASTORE
from localazure.machinelearning.errors import immutable
from localazure.machinelearning.jobs.spec import artifacts_of
from localazure.machinelearning.store import (
    Resource,
    get_resource,
    next_version,
    put_resource,
)
from localazure.sqlite.query import Query, querying

MODEL_TYPES = frozenset({"custom_model", "mlflow_model", "triton_model"})
BEST_TRIAL = "best_child_run_id"
"""The property of a sweep with its best trial, whose outputs are those of the sweep."""

_OUTPUT_NAMES = re.compile(r"\$\{\{\s*(?P<name>name|output_name|default_datastore)\s*\}\}")

logger = logging.getLogger(__name__)


def output_uri(job: str, output: str, entry: dict[str, Any]) -> str:
    """The URI of an output: its path with Azure ML's placeholders replaced, or the default path.

    An `artifacts` output without a path has the files of `./outputs` and the logs.

    https://learn.microsoft.com/azure/machine-learning/how-to-manage-inputs-outputs-pipeline
    """
    if is_default_artifacts(output, entry):
        folder = artifacts_of(job, BlobPath("", "")).path
        return f"azureml://datastores/{ARTIFACT_DATASTORE}/paths/{folder}/"
    uri = entry.get("uri")
    if not uri:
        return f"azureml://datastores/{DEFAULT_DATASTORE}/paths/azureml/{job}/{output}/"
    names = {"name": job, "output_name": output, "default_datastore": DEFAULT_DATASTORE}
    return _OUTPUT_NAMES.sub(lambda match: names[match["name"]], uri)


def is_default_artifacts(output: str, entry: dict[str, Any]) -> bool:
    """Whether an output has what Azure ML keeps of every job: `./outputs`, MLflow's and logs."""
    return output == DEFAULT_ARTIFACTS and not entry.get("uri")


def check_named_outputs(query: Query, job: str, properties: dict[str, Any]) -> None:
    """Refuse a job whose output would be a version that exists, as versions never change.

    Raises:
        ArmError: 409, it exists with other files.
    """
    for collection, name, version, asset in _named(job, properties):
        existing = version and get_resource(query, collection, name, version)
        if existing and _uri(existing.properties) != _uri(asset):
            raise immutable(collection, f"{name}:{version}", ["path"])


def register_outputs(connection: sqlite3.Connection, job: Resource, now: float) -> list[Resource]:
    """Register the named outputs of a completed job, in the transaction of its end.

    Without a version, a name gets its next one, as on Azure (Azure/azure-sdk-for-python#38205).

    Returns:
        The new versions.
    """
    query, registered = querying(connection), list[Resource]()
    properties = job.properties
    files_of = (properties.get("properties") or {}).get(BEST_TRIAL) or job.name
    for collection, name, given, asset in _named(files_of, properties):
        version = given or next_version(query, collection, name)
        if (existing := get_resource(query, collection, name, version)) is not None:
            if _uri(existing.properties) != _uri(asset):
                text = "job %s: %s %s:%s exists with other files, and stays"
                logger.warning(text, job.name, collection, name, version)
            continue
        document = {"properties": asset}
        registered.append(put_resource(connection, collection, name, version, document, now=now)[0])
    return registered


def _named(job: str, properties: dict[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Collection, name, version (or empty) and properties of the asset of each named output."""
    for key, entry in (properties.get("outputs") or {}).items():
        if name := (entry or {}).get("assetName"):
            kind = entry.get("jobOutputType") or "uri_folder"
            uri, version = output_uri(job, key, entry), str(entry.get("assetVersion") or "")
            if kind in MODEL_TYPES:
                asset = {"modelType": kind, "modelUri": uri, "jobName": job}
                yield "models", name, version, asset
            else:
                yield "data", name, version, {"dataType": kind, "dataUri": uri}


def _uri(asset: dict[str, Any]) -> str | None:
    return asset.get("modelUri") or asset.get("dataUri")
