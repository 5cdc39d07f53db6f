"""The state, end, failure and logs of Azure ML's jobs; activities `cancel_job`, `diagnose_job`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError

from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, reason, refused_as_job_rejected
from handlers.platform.clients import Clients
from handlers.platform.configuration.azure_ml_files import SWEEP
from orchestrations.contracts.base import Done
from orchestrations.contracts.training import CancelJob, DiagnoseJob, JobDiagnosis, JobState
from orchestrations.errors import JobRejected, shorten
from orchestrations.platform.waiting import ENDED

if TYPE_CHECKING:
    from azure.ai.ml.entities import Job as AzureMLJob

# Azure ML's property of a sweep that has ended.
BEST_TRIAL = "best_child_run_id"

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
LOG_TIMEOUT_SECONDS = 10
# A job of several processes has a log for each; a job of one process has one.
_LOG_OF_RANK = re.compile(r"user_logs/std_log_process_(\d+)\.txt$")
_ONLY_LOG = "user_logs/std_log.txt"
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


def parts_of(clients: Clients, job: str) -> dict[str, JobState]:
    """The trials of a sweep or the steps of a pipeline, and their states; empty for a command job.

    Raises:
        azure.core.exceptions.AzureError: the run history cannot be read.
    """
    # Not `jobs.list`: it gets the parent first, which Azure ML refuses for steps of pipelines.
    children = run_history(clients).get_run_children(job)
    return {str(each.name): job_state(each.status) for each in children}


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


def _failed_part(clients: Clients, job: str) -> str:
    """The command job that failed: the job itself, or one of its trials or steps."""
    try:
        for name, state in parts_of(clients, job).items():
            if state == "failed":
                return _failed_part(clients, name)
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


@dataclass(frozen=True)
class LogPart:
    """A part of a log, and how many bytes the log has."""

    content: bytes
    start: int
    """Its offset, in bytes."""
    size: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.content)


def find_log(names: Iterable[str], rank: int | None) -> str | None:
    """The name of a rank's log; for an unknown rank, the only log or the log of rank 0."""
    known = set(names)
    by_rank = {int(found[1]): name for name in known if (found := _LOG_OF_RANK.search(name))}
    return by_rank.get(rank or 0) or (_ONLY_LOG if _ONLY_LOG in known else None)


def read_log(url: str, *, offset: int | None, limit_bytes: int) -> LogPart:
    """Read a log from an offset on; without one, its end. A log that is shorter began again.

    Raises:
        AzureError: it cannot be read. The text may have the URL with a shared access signature.
        ValueError: likewise.
    """
    from azure.storage.blob import BlobClient  # noqa: PLC0415 - see handlers.platform.clients

    with BlobClient.from_blob_url(url, connection_timeout=LOG_TIMEOUT_SECONDS) as blob:
        size = blob.get_blob_properties().size
        start = max(size - limit_bytes, 0) if offset is None else offset if offset <= size else 0
        length = min(size - start, limit_bytes)
        content = blob.download_blob(offset=start, length=length).readall() if length else b""
    return LogPart(content, start, size)


def whole_lines(part: LogPart, *, has_ended: bool) -> LogPart:
    """The part without a last line that is still being written.

    Of a log that has ended, the last line is whole; so is a line that fills the part.
    """
    is_cut = part.end < part.size
    if has_ended and not is_cut:
        return part
    end = max(part.content.rfind(b"\n"), part.content.rfind(b"\r")) + 1
    if end == 0 and is_cut:
        return part
    return LogPart(part.content[:end], part.start, part.size)


def lines_of(content: bytes) -> list[str]:
    """The lines as a terminal shows them: where a program wrote over its line, what came last."""
    text = content.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n")
    lines = text.split("\n") if content else []
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]
