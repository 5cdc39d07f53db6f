"""GET /api/runs/{run}/logs: the growing log of a run's job, and the utilisation of its nodes.

Azure Monitor has the utilisation of each job, whatever its program is; it comes some minutes late.
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
from handlers.platform.azure_ml_jobs import job_state, run_history
from handlers.platform.azure_monitor import query_metrics
from handlers.platform.bulkheads import AZURE_ML, PART_SECONDS, Unavailable
from handlers.platform.clients import Clients
from handlers.platform.job_logs import LogPart, find_log, lines_of, read_log, whole_lines
from orchestrations.contracts.run_states import TERMINAL_RUN_STATES, RunState
from orchestrations.contracts.training import JobState, RunRecord
from orchestrations.names import stage_job
from orchestrations.platform.waiting import ENDED

LIMIT_BYTES = 256 * 1024
"""Of a log, in one answer."""
LOGS = "user_logs/"
"""The folder of what a job's program prints."""
METRICS: Mapping[str, str] = {
    "CpuUtilizationPercentage": "cpu_percent",
    "CpuMemoryUtilizationPercentage": "memory_percent",
    "GpuUtilizationPercentage": "gpu_percent",
    "GpuMemoryUtilizationPercentage": "gpu_memory_percent",
}
SEARCHED = timedelta(minutes=15)
"""How old the last minute of the utilisation may be."""


class LogFilter(Parameters):
    """Parameters of GET /api/runs/{run}/logs."""

    job: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,254}$")] = None
    """One of the run's `jobs`; by default the one that is under way, or the last one."""
    file: Annotated[str | None, Field(min_length=1, max_length=1024)] = None
    """One of the job's `files`; by default the log of rank 0."""
    lines: Annotated[int, Field(ge=1, le=5000)] = 100
    """How many of the last lines; not used with `offset`."""
    offset: Annotated[int | None, Field(ge=0)] = None
    """From `next_offset`: only what was written after it."""


class Utilisation(Document):
    """Averages over a job's nodes, or their GPUs, in the last known minute; null if not known."""

    at: datetime
    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu_percent: float | None = None
    gpu_memory_percent: float | None = None


class RunLogs(Document):
    """Answer of `GET /api/runs/{run}/logs`."""

    run: str
    run_state: RunState
    job: str | None
    """Whose log it is; of a sweep or a pipeline, a trial or step. Null: there is none."""
    state: JobState | None
    has_ended: bool
    """Whether nothing more is written."""
    jobs: list[str]
    """The jobs of the run's stages; of a sweep or a pipeline, also the trials or steps."""
    files: list[str]
    file: str | None = None
    text: str = ""
    """Whole lines, each of which ends with a line feed."""
    next_offset: int = 0
    """The `offset` of what follows, in bytes."""
    more: bool = False
    """Whether there is more to read at once."""
    note: str | None = None
    """Why there is no text."""
    utilisation: Utilisation | None = None
    no_utilisation: str | None = None
    """Why the utilisation of a running job is null."""


async def get_logs(
    clients: Clients,
    starter: DurableOrchestrationClient,
    asked: LogFilter,
    *,
    run: str,
    now: datetime,
) -> RunLogs:
    """Return the end of the log of a run's job, or what follows an offset."""
    known = await find_run(clients, starter, run)
    if isinstance(known, LandingDetail):
        began = f"its run is {known.run}" if known.run else "it has started no run"
        raise Problem(404, "unknown-run", f"{run} is no run and has no log: {began}")
    found = await AZURE_ML.ask(_read, clients, known, asked)
    if found.state != "running" or found.job is None:
        return found
    used, reason = None, "Azure Monitor has none yet: it comes some minutes late"
    try:
        minute = now.replace(second=0, microsecond=0)
        used = await AZURE_ML.ask_within(PART_SECONDS, read_utilisation, clients, found.job, minute)
    except (AzureError, Unavailable) as error:
        reason = f"Azure Monitor could not be asked: {type(error).__name__}"
    return found.model_copy(
        update={"utilisation": used, "no_utilisation": None if used else reason}
    )


def _read(clients: Clients, record: RunRecord, asked: LogFilter) -> RunLogs:
    status, is_over = record.status, record.status.state in TERMINAL_RUN_STATES
    names = [
        stage_job(status.id, step.stage or "training")
        for step in record.steps
        if step.state in ("queued", "running")
    ]
    names += [] if status.job is None else [status.job]
    jobs = list(dict.fromkeys(names))
    job = asked.job or status.job or (jobs[-1] if jobs and is_over else None)
    nothing = RunLogs(
        run=status.id,
        run_state=status.state,
        job=job,
        state=None,
        has_ended=is_over,
        jobs=jobs,
        files=[],
    )
    if job is None:
        has = "ended without a job" if is_over else f"has no job yet: it is {status.state}"
        return nothing.model_copy(update={"note": f"run {status.id} {has}"})
    with azure_ml_asked():
        found = if_found(_find_part, clients, job)
    if asked.job not in (None, *jobs) and (found is None or found[0].root_run_id not in jobs):
        raise Problem(
            404,
            "unknown-job",
            f"run {status.id} has no job {asked.job!r}; it has: {', '.join(jobs) or 'none yet'}",
            where="job",
        )
    if found is None:
        return nothing.model_copy(update={"note": f"Azure ML has no job {job}"})
    details, children = found
    state, urls = job_state(details.status), details.log_files or {}
    answer = nothing.model_copy(
        update={
            "job": str(details.run_id),
            "state": state,
            "has_ended": state in ENDED,
            "jobs": list(dict.fromkeys([*jobs, *children])),
            "files": sorted(urls),
        }
    )
    return answer.model_copy(update=_read_file(answer, urls, asked))


def _find_part(clients: Clients, job: str) -> tuple[Any, list[str]]:
    """The details of the job with the log: itself, or a trial or step; the names of its children.

    Of several, the first one that runs, or else that failed, or else the last one.
    """
    history = run_history(clients)
    details = history.get_run_details(job)
    if any(name.startswith(LOGS) for name in details.log_files or ()):
        return details, []
    children = {str(each.name): job_state(each.status) for each in history.get_run_children(job)}
    if not children:
        return details, []
    order: tuple[JobState, ...] = ("running", "failed")
    chosen = (name for state in order for name in children if children[name] == state)
    return _find_part(clients, next(chosen, list(children)[-1]))[0], list(children)


def _read_file(answer: RunLogs, urls: Mapping[str, str], asked: LogFilter) -> dict[str, Any]:
    """The fields of the answer that are about the file."""
    job, file = answer.job, asked.file or find_log(urls, None)
    if file is None or not urls:
        yet = "" if answer.has_ended else " yet"
        return {"note": f"job {job} is {answer.state}: its program has no log{yet}"}
    if file not in urls:
        raise Problem(
            404,
            "unknown-log",
            f"job {job} has no log {file!r}; it has: {', '.join(answer.files)}",
            where="file",
        )
    try:
        part = read_log(urls[file], offset=asked.offset, limit_bytes=LIMIT_BYTES)
    except ResourceNotFoundError:
        part = LogPart(b"", 0, 0)
    except (AzureError, ValueError) as error:
        # Without its text, which has the URL with a shared access signature.
        kind = type(error).__name__
        raise Problem(
            502, "azure-ml", f"{file} of job {job} cannot be read from its storage: {kind}"
        ) from None
    is_cut, part = part.end < part.size, whole_lines(part, has_ended=answer.has_ended)
    lines = lines_of(part.content)
    if asked.offset is None:
        lines = lines[1 if part.start else 0 :][-asked.lines :]
    return {
        "file": file,
        "text": "".join(f"{line}\n" for line in lines),
        "next_offset": part.end,
        "more": is_cut,
        "note": None if part.size else f"{file} of job {job} is empty",
    }


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
    """The last minute of Azure Monitor's answer."""
    by_minute: dict[str, dict[str, float]] = {}
    for metric in answer["value"]:
        for point in (point for series in metric["timeseries"] for point in series["data"]):
            if point.get("average") is not None:
                field = METRICS[metric["name"]["value"]]
                by_minute.setdefault(point["timeStamp"], {})[field] = round(point["average"], 1)
    if not by_minute:
        return None
    last = max(by_minute)
    return Utilisation.model_validate({"at": last, **by_minute[last]})
