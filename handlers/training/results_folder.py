"""The folder in which a job leaves its results, in the workspace's default datastore."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from handlers.platform.azure_ml import if_found
from handlers.platform.clients import Clients
from handlers.platform.configuration.azure_ml_files import SWEEP

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob
    from azure.storage.blob import BlobServiceClient

# Azure ML's property of a sweep that has ended.
BEST_TRIAL = "best_child_run_id"


def results_folder(pipeline: str, run: str) -> str:
    """The folder of a run's results, with a slash at its end."""
    return f"landfall/{pipeline}/{run}/results/"


def trial_folder(trial: str) -> str:
    """The folder of a trial's results: Azure ML's default path of an output."""
    return f"azureml/{trial}/results/"


def judged_folder(pipeline: str, run: str, trial: str | None) -> str:
    """The folder of the results that represent a run: its own, or those of a sweep's trial."""
    return results_folder(pipeline, run) if trial is None else trial_folder(trial)


def find_trial(clients: Clients, name: str) -> str | None:
    """The trial that represents a job, if it is a sweep."""
    job = if_found(clients.ml.jobs.get, name)
    return None if job is None else trial_of(clients, job)


def trial_of(clients: Clients, job: AzureMLJob) -> str | None:
    """The best trial of a sweep; if it has none, a failed trial, which may have the reason."""
    if job.type != SWEEP:
        return None
    best = (job.properties or {}).get(BEST_TRIAL)
    if best is not None:
        return str(best)
    for trial in clients.ml.jobs.list(parent_job_name=str(job.name)):
        if trial.status == "Failed":
            return str(trial.name)
    return None


def hash_of_model(blobs: BlobServiceClient, container: str, folder: str) -> str | None:
    """A hash of the names and ETags of the files in `model/` of a folder; None if there are none.

    A file that is written again, with whatever bits, has another ETag.
    """
    found = blobs.get_container_client(container).list_blobs(name_starts_with=f"{folder}model/")
    lines = sorted(f"{each.name} {each.etag}\n" for each in found)
    return hashlib.sha256("".join(lines).encode()).hexdigest() if lines else None
