"""POST /api/pipelines/{name}/pause, …/resume and …/release: a person decides whether to train.

A pause does not stop active runs or their next attempts: cancel a run to end it.
"""

from __future__ import annotations

import logging
from datetime import datetime

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.landing.blob_created import ensure_landing
from handlers.landing.holding import (
    Pause,
    begin_resumption,
    pause,
    release_held_batch,
    zones_to_resume,
)
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.documents import PauseChanged, Paused, Released
from handlers.operate.api.requests import Problem
from handlers.platform.bulkheads import STORAGE
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import landing_instance

logger = logging.getLogger(__name__)


class PausePipeline(Asked):
    """Body of a pause."""

    reason: str = Field(min_length=1, max_length=500)


class ResumePipeline(Asked):
    """Body of a resumption."""


def pause_pipeline(
    clients: Clients, pipeline: Pipeline, request: PausePipeline, *, now: datetime
) -> PauseChanged:
    """Pause a pipeline: data that lands is frozen and held, and no run starts.

    Pausing a paused pipeline changes nothing.
    """
    made = Pause(by=request.by, reason=request.reason, at=now)
    in_force = pause(clients, pipeline.name, made)
    outcome = "paused" if in_force == made else f"it was paused by {in_force.by} before"
    keep_action(clients, "pause", f"pipeline {pipeline.name}", request, outcome=outcome)
    return PauseChanged(
        paused=Paused.model_validate(in_force),
        changed=in_force == made,
        landings=[],
    )


async def resume_pipeline(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: ResumePipeline,
    *,
    now: datetime,
) -> PauseChanged:
    """End a pause: start the training on held batches.

    The end of the pause is recorded first; then each zone whose batch was held by the pause is
    listed again. If the process dies in between, reconciliation does the rest.
    """
    ended = await STORAGE.ask(begin_resumption, clients, pipeline.name, at=now)
    landings = await land_held_zones(clients, starter, pipeline)
    outcome = "it was not paused"
    if ended is not None:
        outcome = f"resumed; landings opened: {', '.join(landings) or 'none was needed'}"
    on = f"pipeline {pipeline.name}"
    await STORAGE.ask(keep_action, clients, "resume", on, request, outcome=outcome)
    return PauseChanged(paused=None, changed=ended is not None, landings=landings)


async def land_held_zones(
    clients: Clients, starter: DurableOrchestrationClient, pipeline: Pipeline
) -> list[str]:
    """Start or wake a landing for each zone whose batch was held by a pause that has ended."""
    zones = await STORAGE.ask(zones_to_resume, clients, pipeline.name)
    return [await _open_landing(clients, starter, pipeline, partition) for partition in zones]


async def _open_landing(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    partition: str | None,
) -> str:
    """Start or wake the landing of a zone or partition; return its instance."""
    trace = clients.telemetry.new_trace()
    await ensure_landing(
        clients, starter, pipeline, partition, opened_by="release", wake=True, trace=trace
    )
    return landing_instance(pipeline.name, partition)


class ReleaseBatch(Asked):
    """Body of POST /api/pipelines/{name}/release."""

    dataset_version: str = Field(pattern=r"^[0-9a-f]{1,64}$")


async def release(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    request: ReleaseBatch,
) -> Released:
    """Release a held batch for training.

    The alert `batch-held` names its dataset version. If newer batches of the zone were held since,
    the newest one is released: the answer says which. The release is recorded first; then a landing
    is opened. It freezes the current content of the zone, and trains on it if that is the released
    dataset version. If it is another version, the checks that hold batches apply to it again.
    """
    name, wanted = pipeline.name, request.dataset_version
    held = await STORAGE.ask(release_held_batch, clients, name, wanted, request.reason)
    if held is None:
        raise Problem(
            404,
            "unknown-batch",
            f"pipeline {name} holds no batch of dataset version {wanted}: it was released and "
            "trained on, or newer data has replaced it minutes ago",
            where="dataset_version",
        )
    version = held.dataset.version
    outcome = f"dataset version {version} is released"
    on = f"pipeline {name}"
    await STORAGE.ask(keep_action, clients, "release", on, request, outcome=outcome)
    landing = await _open_landing(clients, starter, pipeline, held.dataset.partition)
    logger.info("%s: dataset version %s is released", landing, version)
    return Released(
        id=landing, status_url=f"/api/runs/{landing}", dataset_version=version, batches=held.count
    )
