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
from orchestrations.contracts.runs import START_REASON_LIMIT_CHARACTERS, RunRequest
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
    request: ReproduceModel,
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
            planned = await AZURE_ML.ask(_plan, clients, pipeline, version, request, now)
        except (InvalidPipeline, NotReproducible) as error:
            detail = f"it cannot be trained again: {error}"
            raise Problem(409, "not-reproducible", detail) from None
    run = planned if isinstance(planned, str) else planned.run
    if isinstance(planned, RunRequest):
        await start_attempt(starter, planned)  # at the same moment, another one may have been first
    on = f"model {pipeline.model.name}:{version}"
    await STORAGE.ask(keep_action, clients, "reproduce", on, request, outcome=run)
    return Accepted(id=run, status_url=f"/api/runs/{run}")


def _plan(
    clients: Clients, pipeline: Pipeline, version: str, body: ReproduceModel, now: datetime
) -> RunRequest | str:
    """The run that reproduces a version, or the id of one that has not ended.

    Raises:
        Problem: 404, there is no such version.
        NotReproducible, InvalidPipeline: what made it is gone.
    """
    name = pipeline.model.name
    model = find_version(clients, name, version)
    if model is None:
        raise Problem(404, "unknown-model", f"there is no model {name}:{version}")
    run = tags_of(model).get(tags.RUN)
    claimed = run and read_claim(clients, claim_record(pipeline.name, training_of(run)))
    if not run or not claimed:
        raise NotReproducible(f"no run of this pipeline has made {name}:{version}")
    original = _request_of(clients, claimed.request, run)
    number = last_reproduction(clients.records, pipeline.name, original.training)
    again = reproduction_name(original.training, number)
    last = read_last_attempt(clients, pipeline.name, again) if number else None
    if last is not None:
        due, state = last.next_attempt_at, last.status.state
        found = LastRound(run=again, state=state, configuration=None, next_attempt_at=due)
        if found.is_under_way(now):
            return last.status.id
    reproduces = Reproduces(
        name=name,
        version=version,
        run=run,
        champion=tags_of(model).get(tags.CHAMPION),
        tolerance=body.tolerance,
        number=number + 1,
    )
    # Without the original's receiver, checks, redrive and trace.
    request = RunRequest(
        pipeline=original.pipeline,
        dataset=original.dataset,
        round=original.round,
        attempt=1,
        configuration=original.job_configuration,
        reason=body.reason[:START_REASON_LIMIT_CHARACTERS],
        parameters=original.parameters,
        reproduces=reproduces,
    )
    _check(clients, request, reproduces)
    return request


def _request_of(clients: Clients, first: RunRequest, run: str) -> RunRequest:
    """What a run was started with: its claim, people's changes, and the compute that it used."""
    request, last = first, int(run.rpartition("-")[2])
    while request.attempt < last:
        following = request.model_copy(update={"attempt": request.attempt + 1})
        request = sent_again_as(clients, following)
    record, pipeline = read_run_record(clients, run), request.pipeline
    if request.run != run or record is None or record.compute is None:
        raise NotReproducible(f"how run {run} was started is not kept")
    used = record.compute.cluster, record.compute.nodes
    options = [each for each in pipeline.compute if (each.cluster, each.nodes) == used]
    changed = pipeline.model_copy(update={"compute": options or pipeline.compute})
    return request.model_copy(update={"pipeline": changed})


def _check(clients: Clients, request: RunRequest, reproduces: Reproduces) -> None:
    """Whether everything is there that the run needs."""
    dataset, name = request.dataset, request.pipeline.name
    forgotten_by = find_request_of(clients, name, dataset.version)
    if forgotten_by is not None:
        raise NotReproducible(f"{forgotten_by} forgot contents of its dataset {dataset.version}")
    if not has_manifest(clients, dataset):
        raise NotReproducible(f"manifest {dataset.manifest_path} was removed")
    if request.configuration is None:
        raise NotReproducible(f"the configuration of run {reproduces.run} was not kept")
    read_job_file(clients, name, request.configuration, request.job_file)
    find_original(clients, request, reproduces.run)
    champion_of(clients, reproduces)
