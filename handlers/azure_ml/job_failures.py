"""Activity `diagnose_job`: why a job failed, from Azure ML's run history and the job's logs."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError

from handlers.azure_ml.errors import reason
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.jobs import DiagnoseJob, JobDiagnosis
from orchestrations.errors import shorten

logger = logging.getLogger("landfall")

# They travel in webhooks, whose bodies are under 20 KB; JSON takes up to six bytes a character.
LOG_LIMIT_LINES = 12
LOG_LINE_LIMIT_CHARACTERS = 160
LOG_TAIL_BYTES = 16 * 1024
LOG_TIMEOUT_SECONDS = 10

_RANK = re.compile(r"\brank (\d+)\b", re.IGNORECASE)
# As in "rank 1 on node 0 exited with code 3" and "exited with status code 1".
_EXIT_CODE = re.compile(r"\bexit(?:ed)?(?: with)?(?: status)? code:? (-?\d+)", re.IGNORECASE)
# A job of several processes has a log for each; a job of one process has one.
_LOG_OF_RANK = re.compile(r"user_logs/std_log_process_(\d+)\.txt$")
_ONLY_LOG = "user_logs/std_log.txt"


@dataclass(frozen=True, kw_only=True)
class _History:
    message: str | None
    log_urls: Mapping[str, str]


@activity
def diagnose_job(clients: Clients, request: DiagnoseJob) -> JobDiagnosis:
    """Gather what Azure ML says of a failed job, the failed rank, and the end of that rank's log.

    Of a sweep or a pipeline, the log is that of the first trial or step that failed. What cannot be
    read is left out: the job has failed whether it is known why or not.
    """
    message = _read_history(clients, request.job).message
    failed = _failed_part(clients, request.job)
    history = _read_history(clients, failed)
    message = message or history.message
    rank = parse_rank(history.message or "")
    url = find_log(history.log_urls, rank)
    log = [] if url is None else _read_log(url, failed)
    return JobDiagnosis(
        message=message,
        rank=rank,
        exit_code=parse_exit_code(message or ""),
        log=last_lines(log),
        studio_url=clients.ml.jobs.get(request.job).studio_url,
    )


def parse_rank(message: str) -> int | None:
    """The rank that a message names first."""
    found = _RANK.search(message)
    return None if found is None else int(found[1])


def parse_exit_code(message: str) -> int | None:
    """The exit code that a message names first."""
    found = _EXIT_CODE.search(message)
    return None if found is None else int(found[1])


def find_log(urls: Mapping[str, str], rank: int | None) -> str | None:
    """The URL of a rank's log; of the only one, or of rank 0, where the rank is not known."""
    by_rank = {
        int(found[1]): url for name, url in urls.items() if (found := _LOG_OF_RANK.search(name))
    }
    return by_rank.get(rank or 0) or urls.get(_ONLY_LOG)


def last_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that are not blank, each cut to what a message can hold."""
    kept = [line.rstrip() for line in lines if line.strip()]
    return tuple(shorten(line, LOG_LINE_LIMIT_CHARACTERS) for line in kept[-LOG_LIMIT_LINES:])


def _failed_part(clients: Clients, job: str) -> str:
    """The command job whose failure it is: the job itself, or a trial or step below it."""
    # `jobs.list` would get the parent first, which Azure ML refuses for the steps of pipelines.
    operations: Any = clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    try:
        for child in operations.get_run_children(job):
            if child.status == "Failed":
                return _failed_part(clients, str(child.name))
    except AzureError as error:
        logger.warning("cannot read what failed in job %s: %s", job, reason(error))
    return job


def _read_history(clients: Clients, job: str) -> _History:
    # The SDK reads it in `jobs.stream` alone, which prints logs and waits.
    operations: Any = clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    try:
        details = operations.get_run_details(job)
    except AzureError as error:
        logger.warning("cannot read why job %s failed: %s", job, reason(error))
        return _History(message=None, log_urls={})
    failure = details.error.error if details.error else None
    message = None
    if failure is not None and failure.message:
        text = f"{failure.code}: {failure.message}" if failure.code else failure.message
        message = shorten(text)
    return _History(message=message, log_urls=details.log_files or {})


def _read_log(url: str, job: str) -> Sequence[str]:
    from azure.storage.blob import BlobClient  # noqa: PLC0415 - see handlers.configuration.clients

    try:
        with BlobClient.from_blob_url(url, connection_timeout=LOG_TIMEOUT_SECONDS) as blob:
            size = blob.get_blob_properties().size
            start = max(size - LOG_TAIL_BYTES, 0)
            text = blob.download_blob(offset=start).readall() if size else b""
    except (AzureError, ValueError) as error:
        # Without the error's text: the URL holds a shared access signature.
        logger.warning("cannot read the log of job %s: %s", job, type(error).__name__)
        return []
    return text.decode(errors="replace").splitlines()
