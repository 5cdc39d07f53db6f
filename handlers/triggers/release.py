"""POST /api/pipelines/{name}/release: a person lets a held batch be trained on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.api.actions import Asked, caller, keep_action
from handlers.api.bodies import parse_body
from handlers.api.parameters import find_pipeline
from handlers.configuration.clients import Clients
from handlers.landing_zone.held_batches import release_held_batch
from handlers.triggers.blob_created import ensure_landing
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline

logger = logging.getLogger(__name__)


class ReleaseBatch(Asked):
    """Body of the request."""

    dataset_version: str = Field(pattern=r"^[0-9a-f]{1,64}$")


async def release_batch(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    name: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Release a batch by its dataset version, as the alert `batch-held` names it.

    The release is kept first, and a landing opened then: it freezes what is in the zone now, and
    trains on it if it is this very content. If it is not, it is compared anew.

    Args:
        clients: for the records.
        pipelines: by name.
        starter: the durable client.
        name: of the pipeline.
        headers: of the request, for who asks.
        body: of the request.
    """
    try:
        pipeline = find_pipeline(pipelines, name)
        request = parse_body(ReleaseBatch, body)
    except Problem as problem:
        return problem.to_answer()
    held = await asyncio.to_thread(
        release_held_batch, clients, name, request.dataset_version, request.reason
    )
    if held is None:
        return Problem(
            404,
            "unknown-batch",
            f"pipeline {name} holds no batch of dataset version {request.dataset_version}",
            where="dataset_version",
        ).to_answer()
    version, by = request.dataset_version, caller(headers, request.by)
    await asyncio.to_thread(
        keep_action,
        clients,
        "release",
        f"pipeline {name}",
        by=by,
        reason=request.reason,
        outcome=f"dataset version {version} is released",
    )
    partition = held.dataset.partition
    trace = clients.telemetry.new_trace()
    await ensure_landing(starter, pipeline, partition, opened_by="release", wake=True, trace=trace)
    landing = landing_instance(name, partition)
    logger.info("%s: dataset version %s is released", landing, request.dataset_version)
    return Answer(202, {"id": landing, "status_url": f"/api/runs/{landing}"})
