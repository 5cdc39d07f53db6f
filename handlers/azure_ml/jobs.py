"""Activities `submit_job`, `get_job` and `cancel_job`: the Azure ML job of a run.

It is a command, a sweep or a pipeline job; `job_bindings` says what Landfall sets in each. The
job's name is the run's id and unique in the workspace, so that submitting twice ends in one
job: https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from handlers.azure_ml import tags
from handlers.azure_ml.champions import Champion, find_champion
from handlers.azure_ml.compute_clusters import ensure_option
from handlers.azure_ml.errors import if_found, refused_as_job_rejected
from handlers.azure_ml.job_bindings import Bindings, step_clusters
from handlers.azure_ml.tags import tags_of
from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.configuration.configurations import read_job_file
from handlers.configuration.job_files import COMMAND, PIPELINE, SWEEP
from handlers.durable.activity_adapter import activity
from orchestrations.contracts.base import Done
from orchestrations.contracts.jobs import CancelJob, CancelRequest, GetJob, Job, JobState, SubmitJob
from orchestrations.errors import JobFailed, JobRejected, shorten
from orchestrations.trace_context import run_header
from orchestrations.waiting import ENDED

if TYPE_CHECKING:
    from azure.ai.ml.entities import Command
    from azure.ai.ml.entities import Job as AzureMLJob

# JobStatus of https://learn.microsoft.com/rest/api/azureml/jobs/get. NotResponding (no heartbeat
# of late) is not an end, although the SDK lists it as one, and a paused job waits for its nodes.
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
# `Unknown`, and what a later API may add: the most patient of the states that are no end.
OTHER_STATE: JobState = "running"


@activity
def submit_job(clients: Clients, request: SubmitJob) -> Job:
    """Submit the pipeline's `job.yml` as the run's job, or adopt it if that was done already.

    Raises:
        JobRejected: `job.yml` or the job is refused, or a job of other origin has the name.
    """
    job = if_found(clients.ml.jobs.get, request.run)
    if job is None:
        job = _submit(clients, request)
    if tags_of(job).get(tags.RUN) != request.run:
        raise JobRejected(
            f"the workspace has a job {request.run} that Landfall did not submit (it lacks tag "
            f"{tags.RUN}): its name stands in the way"
        )
    return _describe(clients, job)


@activity
def get_job(clients: Clients, request: GetJob) -> Job:
    """The state of a job, and whether its cancellation was requested.

    Raises:
        JobFailed: there is no such job. Transient, since a service may forget a job for
            a moment.
    """
    job = if_found(clients.ml.jobs.get, request.job)
    if job is None:
        raise JobFailed(f"job {request.job} is not in the workspace: it was deleted")
    return _describe(clients, job)


@activity
def cancel_job(clients: Clients, request: CancelJob) -> Done:
    """Ask for a job's end, without waiting for it. A job that has ended or is gone is fine."""
    if _has_ended(clients, request.job):
        return Done()
    try:
        with refused_as_job_rejected(f"cancel job {request.job}"):
            clients.ml.jobs.begin_cancel(request.job, polling=False)
    except JobRejected:
        if not _has_ended(clients, request.job):
            raise
    return Done()


def request_cancel(clients: Clients, run: str, request: CancelRequest) -> None:
    """Record that a run is to be cancelled: its next poll reads it. The first request counts."""
    record_store.create(clients.records, _cancel_record(run), request.to_dict())


def read_cancel_request(clients: Clients, run: str) -> CancelRequest | None:
    """The request to cancel a run, if there is one."""
    document = record_store.read(clients.records, _cancel_record(run))
    return None if document is None else CancelRequest.from_dict(document)


def find_job_state(clients: Clients, name: str) -> JobState | None:
    """The state of a job; None where there is none."""
    job = if_found(clients.ml.jobs.get, name)
    return None if job is None else job_state(job.status)


def job_seconds(clients: Clients, job: str) -> float:
    """From the start of an ended job to its end, by Azure ML; 0 where it never started.

    Raises:
        azure.core.exceptions.AzureError: it cannot be asked for.
    """
    # `jobs.get` has no times; the SDK reads the run history in `jobs.stream` alone.
    operations: Any = clients.ml.jobs._runs_operations  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    details = operations.get_run_details(job)
    if details.start_time_utc is None or details.end_time_utc is None:
        return 0.0
    return max(0.0, (_utc(details.end_time_utc) - _utc(details.start_time_utc)).total_seconds())


def job_state(status: str | None) -> JobState:
    """Azure ML's status as one of ours."""
    return STATES.get(status or "", OTHER_STATE)


def _submit(clients: Clients, request: SubmitJob) -> AzureMLJob:
    champion = find_champion(clients, request.request.pipeline)
    job = _load(clients, request, champion)
    try:
        with refused_as_job_rejected(f"submit job {request.run}"):
            return clients.ml.jobs.create_or_update(job)
    except JobRejected:
        # This activity may run twice at once: then the job of the other is there by now.
        other = if_found(clients.ml.jobs.get, request.run)
        if other is None:
            raise
        return other


def _load(clients: Clients, request: SubmitJob, champion: Champion | None) -> AzureMLJob:
    from azure.ai.ml import load_job  # noqa: PLC0415 - see handlers.configuration.clients
    from azure.ai.ml.entities import JobResourceConfiguration  # noqa: PLC0415 - likewise

    pipeline = request.request.pipeline
    traceparent = run_header(request.request.traceparent, request.run)
    file = clients.settings.pipelines_folder / pipeline.name / pipeline.job
    configuration = request.request.job_configuration
    text = (
        file.read_text("utf-8")
        if configuration is None
        else read_job_file(clients, pipeline.name, configuration)
    )
    bindings = Bindings(
        request=request,
        champion=champion,
        default_datastore=str(clients.default_datastore.name),
        records_datastore=clients.settings.records_datastore,
        environment=_trace_variables(clients, traceparent),
    )
    try:
        document: Any = yaml.safe_load(text)
        # Paths in it are relative to where it is deployed.
        job = load_job(
            io.StringIO(text),
            relative_origin=str(file),
            params_override=bindings.overrides(document),
        )
    except Exception as error:  # the SDK raises marshmallow's, its own and built-in ones
        raise JobRejected(
            f"{_within(file)} is not a job that Azure ML takes: {shorten(str(error))}"
        ) from error
    if job.type not in {COMMAND, SWEEP, PIPELINE}:
        raise JobRejected(
            f"{_within(file)} is a job of type {job.type}: use {COMMAND}, {SWEEP} or {PIPELINE}"
        )
    for cluster in step_clusters(document):
        for option in pipeline.compute:
            if option.cluster == cluster:
                ensure_option(clients, option)
    if job.type == COMMAND:
        # Not among the overrides: a job of another type would be refused for having `resources`.
        command = cast("Command", job)
        command.resources = command.resources or JobResourceConfiguration()
        command.resources.instance_count = request.capacity.nodes
    job.tags = tags_of(job) | _tags(clients, request, champion, traceparent)
    return job


def _tags(
    clients: Clients, request: SubmitJob, champion: Champion | None, traceparent: str | None
) -> dict[str, str]:
    run, configuration = request.request, request.request.job_configuration
    ours = {
        tags.RUN: request.run,
        tags.PIPELINE: run.pipeline.name,
        tags.DATASET_VERSION: run.dataset.version,
        tags.ATTEMPT: str(run.attempt),
        tags.RESULTS_CONTAINER: str(clients.default_datastore.container_name),
    }
    if configuration is not None:
        ours[tags.CONFIGURATION] = configuration
    if traceparent is not None:
        ours[tags.TRACEPARENT] = traceparent
    if run.redrive is not None:
        ours[tags.REDRIVEN_FROM] = run.redrive.run
    if champion is not None:
        # On the job, so that an execution that adopts it judges by the champion that it was given.
        ours[tags.CHAMPION] = champion.version
        ours[tags.CHAMPION_LEAD] = repr(champion.lead)
    return ours


def _trace_variables(clients: Clients, traceparent: str | None) -> dict[str, str]:
    """Environment variables with which a program puts its spans below the run's."""
    if traceparent is None:
        return {}
    endpoint = clients.settings.otlp_endpoint
    receiver = {} if endpoint is None else {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return {"TRACEPARENT": traceparent, **receiver}


def _within(file: Path) -> str:
    return f"pipelines/{file.parent.name}/{file.name}"


def _has_ended(clients: Clients, name: str) -> bool:
    state = find_job_state(clients, name)
    return state is None or state in ENDED


def _describe(clients: Clients, job: AzureMLJob) -> Job:
    name, state = str(job.name), job_state(job.status)
    return Job(
        name=name,
        state=state,
        champion=tags_of(job).get(tags.CHAMPION),
        champion_lead=float(tags_of(job).get(tags.CHAMPION_LEAD, 0.0)),
        cancel=read_cancel_request(clients, name),
        studio_url=job.studio_url,
        results_container=tags_of(job).get(tags.RESULTS_CONTAINER)
        or str(clients.default_datastore.container_name),
    )


def _cancel_record(run: str) -> str:
    return f"runs/{run}/cancel"


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
