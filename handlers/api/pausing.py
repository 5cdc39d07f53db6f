"""POST /api/pipelines/{name}/pause and …/resume: a person stops a pipeline's trainings for a while.

Runs that are under way go on, and so do their next attempts: cancel them to end them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime

from azure.durable_functions import DurableOrchestrationClient
from pydantic import Field

from handlers.api.actions import Asked, caller, keep_action
from handlers.api.bodies import parse_body
from handlers.api.documents.pipelines import PauseChanged, Paused
from handlers.api.parameters import find_pipeline
from handlers.configuration.clients import Clients
from handlers.landing_zone.pauses import Pause, begin_resumption, pause, zones_to_resume
from handlers.triggers.blob_created import ensure_landing
from handlers.triggers.problem_details import Answer, Problem
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline


class PausePipeline(Asked):
    """Body of a pause."""

    reason: str = Field(min_length=1, max_length=500)


class ResumePipeline(Asked):
    """Body of a resumption."""


async def pause_pipeline(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    *,
    name: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Start no run of a pipeline: what lands is frozen and held. The same again changes nothing."""
    try:
        find_pipeline(pipelines, name)
        asked = parse_body(PausePipeline, body)
    except Problem as problem:
        return problem.to_answer()
    made = Pause(by=caller(headers, asked.by), reason=asked.reason, at=datetime.now(UTC))
    in_force = await asyncio.to_thread(pause, clients, name, made)
    outcome = "paused" if in_force == made else f"it was paused by {in_force.by} before"
    await _keep(clients, "pause", name, made.by, asked.reason, outcome)
    shown = PauseChanged(
        paused=Paused(by=in_force.by, reason=in_force.reason, at=in_force.at),
        changed=in_force == made,
        landings=[],
    )
    return Answer(200, shown.model_dump(mode="json"))


async def resume_pipeline(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    name: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """End a pause: zones that held a batch for it are listed again, and trained on.

    The end is kept first. A process that dies after that leaves the rest to reconciliation.
    """
    try:
        pipeline = find_pipeline(pipelines, name)
        asked = parse_body(ResumePipeline, body)
    except Problem as problem:
        return problem.to_answer()
    ended = await asyncio.to_thread(begin_resumption, clients, name, at=datetime.now(UTC))
    landings = await land_held_zones(clients, starter, pipeline)
    outcome = "it was not paused"
    if ended is not None:
        outcome = f"resumed; landings opened: {', '.join(landings) or 'none was needed'}"
    await _keep(clients, "resume", name, caller(headers, asked.by), asked.reason, outcome)
    shown = PauseChanged(paused=None, changed=ended is not None, landings=landings)
    return Answer(200, shown.model_dump(mode="json"))


async def land_held_zones(
    clients: Clients, starter: DurableOrchestrationClient, pipeline: Pipeline
) -> list[str]:
    """Have a landing under way for each zone that held a batch for a pause that is over."""
    zones = await asyncio.to_thread(zones_to_resume, clients, pipeline.name)
    for partition in zones:
        trace = clients.telemetry.new_trace()
        await ensure_landing(
            starter, pipeline, partition, opened_by="release", wake=True, trace=trace
        )
    return [landing_instance(pipeline.name, partition) for partition in zones]


async def _keep(clients: Clients, what: str, name: str, by: str, reason: str, outcome: str) -> None:
    on = f"pipeline {name}"
    await asyncio.to_thread(keep_action, clients, what, on, by=by, reason=reason, outcome=outcome)
