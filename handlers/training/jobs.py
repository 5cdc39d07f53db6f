"""Activities `submit_job` and `get_job`: the Azure ML job of a run, and what Landfall sets in it.

The job is a command, sweep or pipeline job. Its name (`names.stage_job`: the run's id, or that with
the check before the training) is unique in the workspace, so that submitting is idempotent:
https://learn.microsoft.com/rest/api/azureml/jobs/create-or-update

Of an input or output, Landfall sets type and path; all other keys are the file's, such as `mode`.
See "Inputs and outputs of a training job" in docs/architecture.md.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from handlers.platform import tags
from handlers.platform.activity_adapter import activity
from handlers.platform.azure_ml import if_found, refused_as_job_rejected
from handlers.platform.azure_ml_jobs import cancel_job, job_state
from handlers.platform.clients import Clients
from handlers.platform.configuration.azure_ml_files import (
    COMMAND,
    PIPELINE,
    SWEEP,
    declared,
    job_type,
    parse_job_file,
)
from handlers.platform.configuration.configurations import read_job_file
from handlers.platform.configuration.located_yaml import read_text
from handlers.platform.run_records import read_cancel_request
from handlers.platform.tags import find_version, tags_of
from handlers.training.champions import Champion, find_champion
from handlers.training.compute_clusters import ensure_option
from handlers.training.reproducing import champion_of, find_original, pin
from orchestrations.contracts.training import CancelJob, GetJob, Job, SubmitJob
from orchestrations.errors import JobFailed, JobRejected, shorten
from orchestrations.names import new_files_folder, results_folder, run_of_job
from orchestrations.platform.trace_context import run_header

if TYPE_CHECKING:
    from azure.ai.ml.entities import Command
    from azure.ai.ml.entities import Job as AzureMLJob

NO_CHAMPION = "none"
DEFAULT_MODES = {"inputs": "ro_mount", "outputs": "rw_mount"}


@dataclass(frozen=True, kw_only=True)
class Bindings:
    """The values that a submission sets in a job."""

    request: SubmitJob
    champion: Champion | None
    default_datastore: str
    records_datastore: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the programs; the job file's own variables take precedence."""

    def overrides(self, document: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The changes to a job file, in the form of `az ml job create --set`."""
        kind = job_type(document)
        compute = "settings.default_compute" if kind == PIPELINE else "compute"
        bound: dict[str, Any] = {
            "name": self.request.request.job,
            "experiment_name": document.get("experiment_name")
            or self.request.request.pipeline.name,
            **self._variables(document),
            compute: f"azureml:{self.request.capacity.cluster}",
        }
        if kind == PIPELINE and self.request.request.reproduces is not None:
            bound["settings.force_rerun"] = True  # else Azure ML takes the original's outputs
        sections = {"inputs": self._inputs(), "outputs": self._outputs(is_sweep=kind == SWEEP)}
        for section, values in sections.items():
            # For a pipeline, only declared names: Azure ML refuses an output that no step writes.
            names = declared(document, section) if kind == PIPELINE else values
            job_bindings: Mapping[str, Any] = document.get(section) or {}
            bound |= {
                f"{section}.{name}": _merged(
                    job_bindings.get(name), values[name], default_mode=DEFAULT_MODES[section]
                )
                for name in values
                if name in names
            }
        return [{key: value} for key, value in bound.items()]

    def _variables(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The variables of the job's program, of a sweep's trial, or of each command of a pipeline.

        A trial that is given as a file name gets none, since its content is elsewhere.
        """
        match job_type(document):
            case "pipeline":
                steps: Mapping[str, Any] = document.get("jobs") or {}
                programs = {
                    f"jobs.{name}.": step
                    for name, step in steps.items()
                    if step.get("type", COMMAND) == COMMAND
                }
            case kind if kind == SWEEP:
                programs = {"trial.": document.get("trial")}
            case _:
                programs = {"": document}
        return {
            f"{path}environment_variables.{name}": value
            for path, program in programs.items()
            if isinstance(program, Mapping)
            for name, value in self.environment.items()
            if name not in (program.get("environment_variables") or {})
        }

    def _inputs(self) -> dict[str, Any]:
        request = self.request
        pipeline, dataset = request.request.pipeline, request.request.dataset
        if dataset.copies is None:
            data = f"{pipeline.dataset.datastore}/paths/{pipeline.source.prefix}"
        else:
            data = f"{self.records_datastore}/paths/{dataset.copies}"
        folder = f"azureml://datastores/{self.records_datastore}/paths/"
        base = request.request.base
        new_data: dict[str, Any] = {
            "type": "mltable",
            "path": folder + new_files_folder(dataset.manifest_path, base or "") + "/",
        }
        champion: Any = (
            NO_CHAMPION
            if self.champion is None
            else {"type": "uri_folder", "path": self.champion.path}
        )
        return {
            "manifest": {
                "type": "mltable",
                "path": f"azureml:{request.asset.name}:{request.asset.version}",
            },
            "data": {"type": "uri_folder", "path": f"azureml://datastores/{data}"},
            "champion": champion,
            **({"initial_model": champion} if pipeline.model.warm_start else {}),
            **({"new_data": new_data} if request.request.stage == "champion-check" else {}),
            **request.request.parameters,
        }

    def _outputs(self, *, is_sweep: bool) -> dict[str, Any]:
        """The outputs. Each trial of a sweep writes its own, at the default path."""
        request = self.request.request
        name = request.pipeline.name
        folders = {"results": results_folder(name, request.job)}
        if request.stage == "training":
            folders["checkpoints"] = checkpoints_folder(name, request.training)
        root = f"azureml://datastores/{self.default_datastore}/paths/"
        return {
            name: {"type": "uri_folder", "path": None if is_sweep else root + folder}
            for name, folder in folders.items()
        }


def _merged(declared: Any, override: Any, *, default_mode: str) -> Any:
    """An entry of the file with Landfall's type and path; a literal replaces the entry."""
    if not isinstance(override, Mapping):
        return override
    written = cast("Mapping[str, Any]", declared) if isinstance(declared, Mapping) else {}
    entry = {"mode": default_mode, **written, **cast("Mapping[str, Any]", override)}
    return {key: value for key, value in entry.items() if value is not None}


def checkpoints_folder(pipeline: str, training: str) -> str:
    """The folder of the checkpoints of all attempts in a round of training.

    A further round begins without checkpoints: the finished ones would end its training at once,
    other code may not be able to read them, and a person gave up those of a cancelled round.
    """
    return f"landfall/{pipeline}/{training}/checkpoints/"


def step_clusters(document: Mapping[str, Any]) -> frozenset[str]:
    """The clusters that the steps of a pipeline job name."""
    if job_type(document) != PIPELINE:
        return frozenset()
    steps: Mapping[str, Mapping[str, Any]] = document.get("jobs") or {}
    named = {str(step.get("compute") or "").removeprefix("azureml:") for step in steps.values()}
    return frozenset(named - {""})


@activity
def submit_job(clients: Clients, request: SubmitJob) -> Job:
    """Submit the pipeline's `job.yml` as the run's job, or adopt the job if it exists.

    If the run was cancelled before it had a job, none is submitted, and the answer is `cancelled`.
    A champion check without a champion has no job: the answer is `completed`.

    Raises:
        JobRejected: `job.yml` or the job is refused, or a job of another origin has the name.
        NotReproducible: what the reproduced model was trained with is gone.
    """
    name = request.request.job
    job = if_found(clients.ml.jobs.get, name)
    if job is None:
        cancel = read_cancel_request(clients, request.run)
        if cancel is not None:
            container = str(clients.default_datastore.container_name)
            return Job(name=name, state="cancelled", cancel=cancel, results_container=container)
        job = _submit(clients, request)
    if job is None:
        container = str(clients.default_datastore.container_name)
        return Job(name=name, state="completed", results_container=container)
    if tags_of(job).get(tags.RUN) != request.run:
        raise JobRejected(
            f"the workspace has a job {name} that Landfall did not submit (it lacks tag "
            f"{tags.RUN}): Landfall needs this name for its own job"
        )
    described = _describe(clients, job)
    if described.cancel is not None:
        # Another execution of this activity may have answered that there is no job.
        cancel_job(clients, CancelJob(job=name))
    return described


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


def _submit(clients: Clients, request: SubmitJob) -> AzureMLJob | None:
    reproduces = request.request.reproduces
    champion = (
        find_champion(clients, request.request.pipeline)
        if reproduces is None
        else champion_of(clients, reproduces)
    )
    if champion is None and request.request.stage == "champion-check":
        return None
    job = _load(clients, request, champion)
    try:
        with refused_as_job_rejected(f"submit job {job.name}"):
            return clients.ml.jobs.create_or_update(job)
    except JobRejected:
        # A concurrent execution of this activity may have created the job by now.
        other = if_found(clients.ml.jobs.get, request.request.job)
        if other is None:
            raise
        return other


def _load(clients: Clients, request: SubmitJob, champion: Champion | None) -> AzureMLJob:
    from azure.ai.ml import load_job  # noqa: PLC0415 - see handlers.platform.clients
    from azure.ai.ml.entities import JobResourceConfiguration  # noqa: PLC0415 - likewise

    pipeline = request.request.pipeline
    traceparent = run_header(request.request.traceparent, request.run)
    job_file = request.request.job_file
    shown = f"pipelines/{pipeline.name}/{job_file}"
    file = clients.settings.pipelines_folder / pipeline.name / job_file
    configuration = request.request.job_configuration
    text = (
        read_text(file, invalid=JobRejected)
        if configuration is None
        else read_job_file(clients, pipeline.name, configuration, job_file)
    )
    document = parse_job_file(Path(shown), text, invalid=JobRejected).document
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
            f"{shown} is not a job that Azure ML takes: {shorten(str(error))}"
        ) from error
    if job.type not in {COMMAND, SWEEP, PIPELINE}:
        raise JobRejected(
            f"{shown} is a job of type {job.type}: use {COMMAND}, {SWEEP} or {PIPELINE}"
        )
    for cluster in step_clusters(document):
        for option in request.request.compute:
            if option.cluster == cluster:
                ensure_option(clients, option)
    if job.type == COMMAND:
        # Not among the overrides: Azure ML refuses `resources` in a job of another type.
        command = cast("Command", job)
        command.resources = command.resources or JobResourceConfiguration()
        command.resources.instance_count = request.capacity.nodes
    if request.request.reproduces is not None:
        pin(job, find_original(clients, request.request, request.request.reproduces.run))
    job.tags = tags_of(job) | _tags(clients, request, champion, traceparent)
    return job


def _tags(
    clients: Clients, request: SubmitJob, champion: Champion | None, traceparent: str | None
) -> dict[str, str]:
    run, configuration = request.request, request.request.job_configuration
    tagged = {
        tags.RUN: request.run,
        tags.PIPELINE: run.pipeline.name,
        tags.DATASET_VERSION: run.dataset.version,
        tags.ATTEMPT: str(run.attempt),
        tags.RESULTS_CONTAINER: str(clients.default_datastore.container_name),
    }
    if run.round > 1:
        tagged[tags.ROUND] = str(run.round)
    if configuration is not None:
        tagged[tags.CONFIGURATION] = configuration
    if traceparent is not None:
        tagged[tags.TRACEPARENT] = traceparent
    if run.reproduces is not None:
        tagged[tags.REPRODUCES] = run.reproduces.model
    if run.redrive is not None:
        tagged[tags.REDRIVEN_FROM] = run.redrive.run
    if champion is not None:
        # Tagged on the job, so that an execution that adopts it compares with the same champion.
        tagged[tags.CHAMPION] = champion.version
        tagged[tags.CHAMPION_LEAD] = repr(champion.lead)
        if run.stage == "champion-check" and run.pipeline.champion_check is not None:
            metric = run.pipeline.champion_check.metric or run.pipeline.gate.metric
            model = find_version(clients, run.pipeline.model.name, champion.version)
            score = None if model is None else (model.properties or {}).get(f"metrics.{metric}")
            tagged |= {} if score is None else {tags.CHAMPION_SCORE: str(score)}
    return tagged


def _trace_variables(clients: Clients, traceparent: str | None) -> dict[str, str]:
    """Environment variables that make a program's spans children of the run's span."""
    if traceparent is None:
        return {}
    endpoint = clients.settings.otlp_endpoint
    receiver = {} if endpoint is None else {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    return {"TRACEPARENT": traceparent, **receiver}


def _describe(clients: Clients, job: AzureMLJob) -> Job:
    name, state = str(job.name), job_state(job.status)
    score = tags_of(job).get(tags.CHAMPION_SCORE)
    return Job(
        name=name,
        state=state,
        champion=tags_of(job).get(tags.CHAMPION),
        champion_lead=float(tags_of(job).get(tags.CHAMPION_LEAD, 0.0)),
        champion_score=None if score is None else float(score),
        cancel=read_cancel_request(clients, run_of_job(name)),
        studio_url=job.studio_url,
        results_container=tags_of(job).get(tags.RESULTS_CONTAINER)
        or str(clients.default_datastore.container_name),
    )
