"""The state and the end of Azure ML's jobs; activity `cancel_job`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from handlers.platform.azure_ml.errors import if_found, refused_as_job_rejected
from handlers.platform.clients import Clients
from handlers.platform.durable.activity_adapter import activity
from orchestrations.contracts.base import Done
from orchestrations.contracts.training import CancelJob, JobState
from orchestrations.errors import JobRejected
from orchestrations.platform.waiting import ENDED

# JobStatus of https://learn.microsoft.com/rest/api/azureml/jobs/get. NotResponding (no recent
# heartbeat) is not terminal, although the SDK lists it as such, and a paused job waits for its
# nodes.
STATES: Mapping[str, JobState] = {
    "NotStarted": "queued",
    "Starting": "queued",
    "Provisioning": "queued",
    "Preparing": "queued",
    "Queued": "queued",
    "Paused": "queued",
    "Running": "running",
    "Finalizing": "running",
    "CancelRequested": "running",
    "NotResponding": "running",
    "Completed": "completed",
    "Failed": "failed",
    "Canceled": "cancelled",
}
# `Unknown` and statuses of later APIs: the non-terminal state with the longest deadline.
OTHER_STATE: JobState = "running"


@activity
def cancel_job(clients: Clients, request: CancelJob) -> Done:
    """Cancel a job without waiting. A job that has ended or does not exist is no error."""
    if _has_ended(clients, request.job):
        return Done()
    try:
        with refused_as_job_rejected(f"cancel job {request.job}"):
            clients.ml.jobs.begin_cancel(request.job, polling=False)
    except JobRejected:
        if not _has_ended(clients, request.job):
            raise
    return Done()


def find_job_state(clients: Clients, name: str) -> JobState | None:
    """The state of a job; None if there is no such job."""
    job = if_found(clients.ml.jobs.get, name)
    return None if job is None else job_state(job.status)


def job_state(status: str | None) -> JobState:
    """Azure ML's status as a `JobState`."""
    return STATES.get(status or "", OTHER_STATE)


def job_seconds(clients: Clients, job: str) -> float:
    """The running time of an ended job, by Azure ML; 0 if it never started.

    Raises:
        azure.core.exceptions.AzureError: the run history cannot be read.
    """
    # `jobs.get` returns no times; the SDK reads the run history only in `jobs.stream`.
    operations: Any = clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    details = operations.get_run_details(job)
    if details.start_time_utc is None or details.end_time_utc is None:
        return 0.0
    return max(0.0, (_utc(details.end_time_utc) - _utc(details.start_time_utc)).total_seconds())


def _has_ended(clients: Clients, name: str) -> bool:
    state = find_job_state(clients, name)
    return state is None or state in ENDED


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
