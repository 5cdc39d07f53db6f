"""The trial whose outputs are the results of a sweep.

https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from handlers.platform.azure_ml.errors import if_found
from handlers.platform.clients import Clients
from handlers.platform.configuration.job_files import SWEEP

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob

# Azure ML's property of a sweep that has ended.
BEST_TRIAL = "best_child_run_id"


def find_trial(clients: Clients, run: str) -> str | None:
    """The trial that represents a run's job, if the job is a sweep."""
    job = if_found(clients.ml.jobs.get, run)
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
