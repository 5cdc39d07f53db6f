"""Counts the ended and the failed jobs of a batch deployment."""

from __future__ import annotations

from collections import Counter

from handlers.platform.clients import Clients
from orchestrations.contracts.rollouts import Observation
from orchestrations.names import smoke_job


def count_jobs(clients: Clients, endpoint: str, deployment: str) -> Observation:
    """Count the jobs of a deployment since its creation, without its smoke jobs.

    Cancelled jobs are left out, since they say nothing about the model.
    """
    smoke = smoke_job(endpoint, deployment)
    jobs = clients.ml.batch_deployments.list_jobs(endpoint, name=deployment)
    statuses = Counter(str(job.status) for job in jobs if str(job.name).partition("_")[0] != smoke)
    failed = statuses["Failed"]
    return Observation(requests=statuses["Completed"] + failed, failures=failed)
