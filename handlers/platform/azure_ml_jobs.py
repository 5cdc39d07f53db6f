"""The state, end and failure of Azure ML's jobs; activities `cancel_job` and `diagnose_job`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError

from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, reason, refused_as_job_rejected
from handlers.platform.clients import Clients
from handlers.platform.job_logs import find_log, read_log
from orchestrations.contracts.base import Done
from orchestrations.contracts.training import CancelJob, DiagnoseJob, JobDiagnosis, JobState
from orchestrations.errors import JobRejected, shorten
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
logger = logging.getLogger("landfall")
# Log lines are sent in webhooks of at most 20 KB; JSON takes up to six bytes a character.
LOG_LIMIT_LINES = 12
LOG_LINE_LIMIT_CHARACTERS = 160
LOG_TAIL_BYTES = 16 * 1024
_RANK = re.compile(r"\brank (\d+)\b", re.IGNORECASE)
# As in "rank 1 on node 0 exited with code 3" and "exited with status code 1".
_EXIT_CODE = re.compile(r"\bexit(?:ed)?(?: with)?(?: status)? code:? (-?\d+)", re.IGNORECASE)


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
    details = run_history(clients).get_run_details(job)  # `jobs.get` returns no times
    if details.start_time_utc is None or details.end_time_utc is None:
        return 0.0
    return max(0.0, (_utc(details.end_time_utc) - _utc(details.start_time_utc)).total_seconds())


def run_history(clients: Clients) -> Any:
    """The SDK's operations on the run history: `get_run_details`, `get_run_children`.

    The SDK itself reads it only in `jobs.stream`, which prints logs and waits.
    """
    return clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def _has_ended(clients: Clients, name: str) -> bool:
    state = find_job_state(clients, name)
    return state is None or state in ENDED


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class _History:
    message: str | None
    log_urls: Mapping[str, str]


@activity
def diagnose_job(clients: Clients, request: DiagnoseJob) -> JobDiagnosis:
    """Return Azure ML's message for a failed job, the failed rank, and the end of its log.

    For a sweep or a pipeline, the log is from the first trial or step that failed. Fields that
    cannot be read stay empty: a diagnosis must not fail the run's last steps.
    """
    message = _read_history(clients, request.job).message
    failed = _failed_part(clients, request.job)
    history = _read_history(clients, failed)
    message = message or history.message
    rank = parse_rank(history.message or "")
    name = find_log(history.log_urls, rank)
    log = [] if name is None else _read_end(history.log_urls[name], failed)
    return JobDiagnosis(
        message=message,
        rank=rank,
        exit_code=parse_exit_code(message or ""),
        log=last_lines(log),
        studio_url=clients.ml.jobs.get(request.job).studio_url,
    )


def failure_message(clients: Clients, job: str) -> str | None:
    """Azure ML's message for a failed job, or for its first trial or step that failed.

    None if it has none, or cannot be read.
    """
    message = _read_history(clients, job).message
    failed = _failed_part(clients, job)
    return message if failed == job else _read_history(clients, failed).message or message


def parse_rank(message: str) -> int | None:
    """The first rank in a message."""
    found = _RANK.search(message)
    return None if found is None else int(found[1])


def parse_exit_code(message: str) -> int | None:
    """The first exit code in a message."""
    found = _EXIT_CODE.search(message)
    return None if found is None else int(found[1])


def last_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that are not blank, each cut to `LOG_LINE_LIMIT_CHARACTERS`."""
    kept = [line.rstrip() for line in lines if line.strip()]
    return tuple(shorten(line, LOG_LINE_LIMIT_CHARACTERS) for line in kept[-LOG_LIMIT_LINES:])


def _failed_part(clients: Clients, job: str) -> str:
    """The command job that failed: the job itself, or one of its trials or steps."""
    # Not `jobs.list`: it gets the parent first, which Azure ML refuses for steps of pipelines.
    try:
        for child in run_history(clients).get_run_children(job):
            if child.status == "Failed":
                return _failed_part(clients, str(child.name))
    except AzureError as error:
        logger.warning("cannot read what failed in job %s: %s", job, reason(error))
    return job


def _read_history(clients: Clients, job: str) -> _History:
    try:
        details = run_history(clients).get_run_details(job)
    except AzureError as error:
        logger.warning("cannot read why job %s failed: %s", job, reason(error))
        return _History(message=None, log_urls={})
    failure = details.error.error if details.error else None
    message = None
    if failure is not None and failure.message:
        text = f"{failure.code}: {failure.message}" if failure.code else failure.message
        message = shorten(text)
    return _History(message=message, log_urls=details.log_files or {})


def _read_end(url: str, job: str) -> Sequence[str]:
    try:
        content = read_log(url, offset=None, limit_bytes=LOG_TAIL_BYTES).content
    except (AzureError, ValueError) as error:
        # Log only the error's type: its text has the URL with a shared access signature.
        logger.warning("cannot read the log of job %s: %s", job, type(error).__name__)
        return []
    return content.decode(errors="replace").splitlines()
