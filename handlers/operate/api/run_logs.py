"""GET /api/runs/{run}/logs: the growing log of a run's job, and the utilisation of its nodes.

Azure Monitor has the utilisation of every job, whatever its program is; it comes some minutes late.
https://learn.microsoft.com/azure/machine-learning/monitor-azure-machine-learning-reference
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.operate.api.documents import LandingDetail
from handlers.operate.api.models import azure_ml_asked
from handlers.operate.api.requests import Document, Parameters, Problem
from handlers.operate.api.runs import find_run
from handlers.platform.azure_ml import if_found
from handlers.platform.azure_ml_jobs import (
    LogPart,
    find_log,
    job_state,
    lines_of,
    parts_of,
    read_log,
    run_history,
    whole_lines,
)
from handlers.platform.azure_monitor import query_metrics
from handlers.platform.bulkheads import AZURE_ML, PART_SECONDS, Unavailable
from handlers.platform.clients import Clients
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, RunState
from orchestrations.contracts.runs import RunStatus
from orchestrations.contracts.training import JobState
from orchestrations.names import run_of_job
from orchestrations.platform.waiting import ENDED

LIMIT_BYTES = 256 * 1024
"""Of a log, in one answer."""
METRICS: Mapping[str, str] = {
    "CpuUtilizationPercentage": "CPU",
    "CpuMemoryUtilizationPercentage": "memory",
    "GpuUtilizationPercentage": "GPU",
    "GpuMemoryUtilizationPercentage": "GPU memory",
}
SEARCHED = timedelta(minutes=15)


class LogFilter(Parameters):
    """Parameters of GET /api/runs/{run}/logs."""

    job: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$")] = None
    file: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    lines: Annotated[int, Field(ge=1, le=5000)] = 100
    """How many of the last lines; not used with `offset`."""
    offset: Annotated[int | None, Field(ge=0)] = None
    """From `next_offset`: only what was written after it."""


class Utilisation(Document):
    """Averages over a job's nodes, or their GPUs, in the last minute that is known."""

    at: datetime
    percent: dict[str, float]


class RunLogs(Document):
    """Answer of `GET /api/runs/{run}/logs`."""

    run_state: RunState
    job: str | None
    """Of a sweep or a pipeline, the trial or step whose log it is."""
    state: JobState | None = None
    has_ended: bool
    """Whether nothing more is written."""
    jobs: list[str] = Field(default_factory=list[str])
    """The trials or steps of a sweep or a pipeline."""
    files: list[str] = Field(default_factory=list[str])
    file: str | None = None
    text: str = ""
    next_offset: int = 0
    more: bool = False
    """Whether there is more to read at once."""
    note: str | None = None
    """Why the log has no text."""
    utilisation: Utilisation | None = None
    no_utilisation: str | None = None


async def get_logs(
    clients: Clients,
    starter: DurableOrchestrationClient,
    query: LogFilter,
    *,
    run: str,
    now: datetime,
) -> RunLogs:
    """Return the end of the log of a run's job, or what follows an offset."""
    detail = await find_run(clients, starter, run)
    if isinstance(detail, LandingDetail):
        raise Problem(404, "unknown-run", f"{run} is no run; its run is {detail.run or 'to come'}")
    logs = await AZURE_ML.ask(_read, clients, detail.status, query)
    if logs.state != "running" or logs.job is None:
        return logs
    minute = now.replace(second=0, microsecond=0)
    try:
        used = await AZURE_ML.ask_within(PART_SECONDS, read_utilisation, clients, logs.job, minute)
        reason = None if used else "Azure Monitor has none yet: it comes some minutes late"
    except (AzureError, Unavailable) as error:
        used, reason = None, f"Azure Monitor could not be asked: {type(error).__name__}"
    return logs.model_copy(update={"utilisation": used, "no_utilisation": reason})


def _read(clients: Clients, status: RunStatus, query: LogFilter) -> RunLogs:
    job, is_over = query.job or status.job, status.state in TERMINAL_RUN_STATES
    with azure_ml_asked():
        log_part = None if job is None else if_found(_find_part, clients, job)
    root = log_part and str(log_part[0].root_run_id or log_part[0].run_id)
    if query.job and (not root or run_of_job(root) != status.id):
        raise Problem(404, "unknown-job", f"run {status.id} has no job {job}", where="job")
    if log_part is None:
        note = f"Azure ML has no job {job}"
        if job is None:
            note = f"run {status.id} has no job{'' if is_over else ' yet'}: it is {status.state}"
        return RunLogs(run_state=status.state, job=job, has_ended=is_over, note=note)
    details, children = log_part
    job, state, urls = str(details.run_id), job_state(details.status), details.log_files or {}
    file, has_ended = query.file or find_log(urls, None), state in ENDED
    if query.file not in (None, *urls) and (urls or has_ended):
        listed = ", ".join(sorted(urls)) or "none"
        detail = f"job {job} has no log {file!r}; it has: {listed}"
        raise Problem(404, "unknown-log", detail, where="file")
    part = _read_part(urls.get(file), query.offset, f"{file} of job {job}")
    whole = whole_lines(part, has_ended=has_ended)
    lines = lines_of(whole.content)
    if query.offset is None:
        lines = lines[1 if part.start else 0 :][-query.lines :]
    return RunLogs(
        run_state=status.state,
        job=job,
        state=state,
        has_ended=has_ended,
        jobs=children,
        files=sorted(urls),
        file=file,
        text="".join(f"{line}\n" for line in lines),
        next_offset=whole.end,
        more=part.end < part.size,
        note=None if part.size else "its program has printed nothing" + " yet" * (not has_ended),
    )


def _find_part(clients: Clients, job: str) -> tuple[Any, list[str]]:
    """The details of the job with the log: itself, or a trial or step; the names of all of these.

    Of several, the first one that runs, or else that failed, or else the last one.
    """
    details = run_history(clients).get_run_details(job)
    has_log = find_log(details.log_files or (), None) is not None
    parts = {} if has_log else parts_of(clients, job)
    if not parts:
        return details, []
    order: tuple[JobState, ...] = ("running", "failed")
    chosen = (name for state in order for name in parts if parts[name] == state)
    return _find_part(clients, next(chosen, list(parts)[-1]))[0], list(parts)


def _read_part(url: str | None, offset: int | None, what: str) -> LogPart:
    try:
        if url is not None:
            return read_log(url, offset=offset, limit_bytes=LIMIT_BYTES)
    except ResourceNotFoundError:
        pass  # nothing was printed
    except (AzureError, ValueError) as error:
        # Without its text, which has the URL with a shared access signature.
        kind = type(error).__name__
        raise Problem(502, "azure-ml", f"{what} cannot be read from its storage: {kind}") from None
    return LogPart(b"", 0, 0)


@lru_cache(maxsize=64)  # each open page and each command that follows polls
def read_utilisation(clients: Clients, job: str, minute: datetime) -> Utilisation | None:
    """The utilisation in the last minute that Azure Monitor knows; None if it knows none.

    Raises:
        AzureError: Azure Monitor refuses, or is not available.
    """
    metrics, condition = ",".join(METRICS), f"RunId eq '{job}'"
    answer = query_metrics(clients, "", metrics, condition, since=minute - SEARCHED, now=minute)
    return parse_utilisation(answer)


def parse_utilisation(answer: Any) -> Utilisation | None:
    """The last minute of Azure Monitor's answer. Pure."""
    by_minute: dict[str, dict[str, float]] = {}
    for metric in answer["value"]:
        for point in (point for series in metric["timeseries"] for point in series["data"]):
            if point.get("average") is not None:
                name = METRICS[metric["name"]["value"]]
                by_minute.setdefault(point["timeStamp"], {})[name] = round(point["average"], 1)
    if not by_minute:
        return None
    last = max(by_minute)
    return Utilisation.model_validate({"at": last, "percent": by_minute[last]})
