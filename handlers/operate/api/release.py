"""POST /api/pipelines/{name}/release: a person releases a held batch for training."""

from __future__ import annotations

import logging

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.landing.blob_created import ensure_landing
from handlers.landing.held_batches import release_held_batch
from handlers.operate.api.actions import Asked, keep_action
from handlers.operate.api.documents.pipelines import Released
from handlers.operate.api.problem_details import Problem
from handlers.platform.bulkheads import STORAGE
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import landing_instance

logger = logging.getLogger(__name__)


class ReleaseBatch(Asked):
    """Body of POST /api/pipelines/{name}/release."""

    dataset_version: str = Field(pattern=r"^[0-9a-f]{1,64}$")


async def release(
    clients: Clients,
    starter: DurableOrchestrationClient,
    pipeline: Pipeline,
    asked: ReleaseBatch,
) -> Released:
    """Release a held batch for training.

    The alert `batch-held` names its dataset version. If newer batches of the zone were held since,
    the newest one is released: the answer says which. The release is recorded first; then a landing
    is opened. It freezes the current content of the zone, and trains on it if that is the released
    dataset version. If it is another version, the checks that hold batches apply to it again.
    """
    name, wanted = pipeline.name, asked.dataset_version
    held = await STORAGE.ask(release_held_batch, clients, name, wanted, asked.reason)
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
    await STORAGE.ask(keep_action, clients, "release", on, asked, outcome=outcome)
    partition = held.dataset.partition
    trace = clients.telemetry.new_trace()
    await ensure_landing(
        clients, starter, pipeline, partition, opened_by="release", wake=True, trace=trace
    )
    landing = landing_instance(name, partition)
    logger.info("%s: dataset version %s is released", landing, version)
    return Released(
        id=landing, status_url=f"/api/runs/{landing}", dataset_version=version, batches=held.count
    )
