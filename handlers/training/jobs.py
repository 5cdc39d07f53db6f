"""Activities `submit_job` and `get_job`: the Azure ML job of a run.

The job is a command, sweep or pipeline job; `job_bindings` describes what Landfall sets in it. Its
name is the run's id and unique in the workspace, so that submitting is idempotent:
https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, cast

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, refused_as_job_rejected
from handlers.platform.azure_ml_jobs import job_state
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import read_job_file
from handlers.platform.configuration.located_yaml import read_text
from handlers.platform.configuration.pipeline_files import COMMAND, PIPELINE, SWEEP, parse_job_file
from handlers.platform.run_records import read_cancel_request
from handlers.platform.tags import tags_of
from handlers.training.champions import Champion, find_champion
from handlers.training.compute_clusters import ensure_option
from handlers.training.job_bindings import Bindings, step_clusters
from orchestrations.contracts.jobs import GetJob, Job, SubmitJob
from orchestrations.errors import JobFailed, JobRejected, shorten
from orchestrations.platform.trace_context import run_header

if TYPE_CHECKING:
    from azure.ai.ml.entities import Command
    from azure.ai.ml.entities import Job as AzureMLJob


@activity
def submit_job(clients: Clients, request: SubmitJob) -> Job:
    """Submit the pipeline's `job.yml` as the run's job, or adopt the job if it exists.

    If the run was cancelled before it had a job, none is submitted, and the answer is `cancelled`.

    Raises:
        JobRejected: `job.yml` or the job is refused, or a job of another origin has the name.
    """
    job = if_found(clients.ml.jobs.get, request.run)
    if job is None:
        cancel = read_cancel_request(clients, request.run)
        if cancel is not None:
            container = str(clients.default_datastore.container_name)
            return Job(
                name=request.run, state="cancelled", cancel=cancel, results_container=container
            )
        job = _submit(clients, request)
    if tags_of(job).get(tags.RUN) != request.run:
        raise JobRejected(
            f"the workspace has a job {request.run} that Landfall did not submit (it lacks tag "
            f"{tags.RUN}): its name stands in the way"
        )
    return _describe(clients, job)


@activity
def get_job(clients: Clients, request: GetJob) -> Job:
    """The state of a job, and whether cancellation was requested.

    Raises:
        JobFailed: there is no such job. Transient, since a job may be invisible for a moment.
    """
    job = if_found(clients.ml.jobs.get, request.job)
    if job is None:
        raise JobFailed(f"job {request.job} is not in the workspace: it was deleted")
    return _describe(clients, job)


def _submit(clients: Clients, request: SubmitJob) -> AzureMLJob:
    champion = find_champion(clients, request.request.pipeline)
    job = _load(clients, request, champion)
    try:
        with refused_as_job_rejected(f"submit job {request.run}"):
            return clients.ml.jobs.create_or_update(job)
    except JobRejected:
        # A concurrent execution of this activity may have created the job by now.
        other = if_found(clients.ml.jobs.get, request.run)
        if other is None:
            raise
        return other


def _load(clients: Clients, request: SubmitJob, champion: Champion | None) -> AzureMLJob:
    from azure.ai.ml import load_job  # noqa: PLC0415 - see handlers.platform.clients
    from azure.ai.ml.entities import JobResourceConfiguration  # noqa: PLC0415 - likewise

    pipeline = request.request.pipeline
    traceparent = run_header(request.request.traceparent, request.run)
    file = clients.settings.pipelines_folder / pipeline.name / pipeline.job
    configuration = request.request.job_configuration
    text = (
        read_text(file, invalid=JobRejected)
        if configuration is None
        else read_job_file(clients, pipeline.name, configuration)
    )
    document = parse_job_file(Path(_within(file)), text, invalid=JobRejected).document
    bindings = Bindings(
        request=request,
        champion=champion,
        default_datastore=str(clients.default_datastore.name),
        records_datastore=clients.settings.records_datastore,
        environment=_trace_variables(clients, traceparent),
    )
    try:
        # Paths in the file are relative to the folder in which it is deployed.
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
        # Not among the overrides: Azure ML refuses `resources` in a job of another type.
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
    if run.round > 1:
        ours[tags.ROUND] = str(run.round)
    if configuration is not None:
        ours[tags.CONFIGURATION] = configuration
    if traceparent is not None:
        ours[tags.TRACEPARENT] = traceparent
    if run.redrive is not None:
        ours[tags.REDRIVEN_FROM] = run.redrive.run
    if champion is not None:
        # Tagged on the job, so that an execution that adopts it compares with the same champion.
        ours[tags.CHAMPION] = champion.version
        ours[tags.CHAMPION_LEAD] = repr(champion.lead)
    return ours


def _trace_variables(clients: Clients, traceparent: str | None) -> dict[str, str]:
    """Environment variables that make a program's spans children of the run's span."""
    if traceparent is None:
        return {}
    endpoint = clients.settings.otlp_endpoint
    receiver = {} if endpoint is None else {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return {"TRACEPARENT": traceparent, **receiver}


def _within(file: Path) -> str:
    return f"pipelines/{file.parent.name}/{file.name}"


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
