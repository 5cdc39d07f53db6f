"""POST /api/pipelines/{name}/models/{version}/reproduce: train a model again, and compare."""

from __future__ import annotations

from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.landing.forgetting import find_request_of
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.models import azure_ml_asked
from handlers.operate.api.requests import Accepted, Problem
from handlers.platform import tags
from handlers.platform.bulkheads import AZURE_ML, STORAGE
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import read_job_file
from handlers.platform.manifests import has_manifest
from handlers.platform.run_index import last_reproduction
from handlers.platform.run_records import read_claim, read_last_attempt, read_run_record
from handlers.platform.tags import find_version, tags_of
from handlers.training.reproducing import champion_of, find_original
from handlers.training.retries import sent_again_as, start_attempt
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.reproductions import TOLERANCE, Reproduces
from orchestrations.contracts.runs import RunRequest
from orchestrations.contracts.training import RunRecord
from orchestrations.errors import InvalidPipeline, NotReproducible
from orchestrations.landing.decisions import LastRound
from orchestrations.names import claim_record, reproduction_name, training_of


class ReproduceModel(Asked):
    """Body of POST /api/pipelines/{name}/models/{version}/reproduce."""

    reason: str = Field(min_length=1, max_length=500)
    tolerance: float = Field(default=TOLERANCE, ge=0, lt=1)
    """By how much the metrics of the gate may differ, relative to the greater of two values."""


async def reproduce_model(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    asked: ReproduceModel,
    *,
    version: str,
    now: datetime,
) -> Accepted:
    """Train a version again, with the frozen data, configuration, code, environment and champion.

    The run registers no model. If it is asked for while a reproduction of the version has not
    ended, the answer is that one, with its tolerance.
    """
    with azure_ml_asked():
        try:
            planned = await AZURE_ML.ask(_plan, clients, pipeline, version, asked, now)
        except (InvalidPipeline, NotReproducible) as error:
            raise _not_reproducible(str(error)) from None
    run = planned if isinstance(planned, str) else planned.run
    if isinstance(planned, RunRequest):
        await start_attempt(starter, planned)  # at the same moment, another one may have been first
    on = f"model {pipeline.model.name}:{version}"
    await STORAGE.ask(keep_action, clients, "reproduce", on, asked, outcome=run)
    return Accepted(id=run, status_url=f"/api/runs/{run}")


def _plan(
    clients: Clients, pipeline: Pipeline, version: str, asked: ReproduceModel, now: datetime
) -> RunRequest | str:
    """The run that reproduces a version, or the id of one that has not ended.

    Raises:
        Problem: 404, there is no such version; 409, Landfall did not train it, or its data is gone.
        NotReproducible, InvalidPipeline: its job, code, champion or configuration is gone.
    """
    name = pipeline.model.name
    model = find_version(clients, name, version)
    if model is None:
        raise Problem(404, "unknown-model", f"there is no model {name}:{version}")
    run = tags_of(model).get(tags.RUN)
    claim = None if run is None else claim_record(pipeline.name, training_of(run))
    claimed = None if claim is None else read_claim(clients, claim)
    if run is None or claimed is None:
        raise _not_reproducible(f"no run of this pipeline has made {name}:{version}")
    original = _request_of(clients, claimed.request, run)
    training, number = (
        original.training,
        last_reproduction(clients.records, pipeline.name, original.training),
    )
    again = reproduction_name(training, number)
    last = read_last_attempt(clients, pipeline.name, again) if number else None
    if last is not None and _is_under_way(last, now):
        return last.status.id
    _check_data(clients, original)
    request = original.model_copy(
        update={
            "reproduces": Reproduces(
                name=name,
                version=version,
                run=run,
                champion=tags_of(model).get(tags.CHAMPION),
                tolerance=asked.tolerance,
                number=number + 1,
            ),
            "attempt": 1,
            "reason": asked.reason[:300],
            "configuration": original.job_configuration,
            "redrive": None,
            "receiver": None,
            "checks": (),
            "base": None,
            "traceparent": None,
        }
    )
    assert request.reproduces is not None
    if request.configuration is None:
        raise _not_reproducible(f"run {run} has kept no configuration")
    read_job_file(clients, pipeline.name, request.configuration, request.job_file)
    find_original(clients, request, run)
    champion_of(clients, request.reproduces)
    return request


def _request_of(clients: Clients, first: RunRequest, run: str) -> RunRequest:
    """What a run was started with: its claim, people's changes, and the compute that it used."""
    request = first
    while request.run != run:
        following = request.model_copy(update={"attempt": request.attempt + 1})
        request = sent_again_as(clients, following)
        if request.attempt > int(run.rpartition("-")[2]):
            raise _not_reproducible(f"how run {run} was started is not kept")
    record = read_run_record(clients, run)
    used = None if record is None else record.compute
    options = [
        each
        for each in request.pipeline.compute
        if used is not None and (each.cluster, each.nodes) == (used.cluster, used.nodes)
    ]
    pipeline = request.pipeline.model_copy(
        update={"compute": options[:1] or request.pipeline.compute}
    )
    return request.model_copy(update={"pipeline": pipeline})


def _is_under_way(last: RunRecord, now: datetime) -> bool:
    at, state = last.next_attempt_at, last.status.state
    found = LastRound(run=last.status.id, state=state, configuration=None, next_attempt_at=at)
    return found.is_under_way(now)


def _check_data(clients: Clients, request: RunRequest) -> None:
    dataset = request.dataset
    if not has_manifest(clients, dataset):
        raise _not_reproducible(f"manifest {dataset.manifest_path} was removed")
    forgotten_by = find_request_of(clients, request.pipeline.name, dataset.version)
    if forgotten_by is not None:
        raise _not_reproducible(
            f"{forgotten_by} forgot contents of dataset version {dataset.version}"
        )


def _not_reproducible(detail: str) -> Problem:
    return Problem(409, "not-reproducible", f"it cannot be trained again: {detail}")
