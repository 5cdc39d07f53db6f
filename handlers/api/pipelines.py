"""GET /api/pipelines and GET /api/pipelines/{name}: the state of pipelines, and its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime

from azure.core.exceptions import AzureError
from azure.durable_functions import DurableOrchestrationClient

from handlers.api import sentences
from handlers.api.documents.pipelines import (
    Champion,
    HeldSummary,
    Paused,
    PipelineDetail,
    PipelineList,
    PipelineState,
    PipelineSummary,
    ZoneState,
)
from handlers.api.documents.queues import CostState
from handlers.api.documents.runs import RunSummary
from handlers.api.missing_settings import missing_settings
from handlers.api.queues import read_costs
from handlers.api.remedies import remedy
from handlers.azure_ml.champions import find_champion
from handlers.configuration.clients import Clients
from handlers.durable.instances import is_live
from handlers.durable.status_documents import parsed
from handlers.landing_zone.batch_records import last_batch
from handlers.landing_zone.held_batches import is_released, read_held
from handlers.landing_zone.newest_events import list_newest_events, read_zone_activity
from handlers.landing_zone.pauses import Pause, read_pause, read_pauses
from handlers.runs.run_index import UNFINISHED_STATES, list_runs, list_unfinished_runs
from orchestrations.contracts.landing import LandingStatus, LastBatch, ReadZoneActivity
from orchestrations.contracts.runs import RunState
from orchestrations.errors import LandfallError
from orchestrations.names import landing_instance
from orchestrations.pipeline import Pipeline

RUNNING_LIMIT = 10
ZONES_LIMIT = 10
"""How many partitions are shown if each is a batch: the ones with the newest events."""


async def list_pipelines(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    now: datetime,
) -> PipelineList:
    """List all pipelines, with their states and reasons.

    The number of requests does not grow with the number of past runs.
    """
    costs, pauses, unfinished = await asyncio.gather(
        asyncio.to_thread(read_costs, clients, now),
        asyncio.to_thread(read_pauses, clients),
        asyncio.to_thread(list_unfinished_runs, clients.records),
    )
    found = await asyncio.gather(
        *(
            _summarise(
                clients,
                pipelines[name],
                starter,
                pause=pauses.get(name),
                running=[
                    RunSummary.model_validate(run)
                    for run in unfinished.get(name, [])[:RUNNING_LIMIT]
                ],
                costs=costs,
                partitions=[None],
                now=now,
            )
            for name in sorted(pipelines)
        )
    )
    return PipelineList(pipelines=[summary for summary, _ in found])


async def get_pipeline(
    clients: Clients, pipeline: Pipeline, starter: DurableOrchestrationClient, *, now: datetime
) -> PipelineDetail:
    """Return one pipeline with its zones and its champion."""
    partitions, costs, pause, running = await asyncio.gather(
        asyncio.to_thread(_partitions, clients, pipeline),
        asyncio.to_thread(read_costs, clients, now),
        asyncio.to_thread(read_pause, clients, pipeline.name),
        asyncio.to_thread(_runs, clients, pipeline, limit=RUNNING_LIMIT, states=UNFINISHED_STATES),
    )
    (summary, zones), (champion, problem) = await asyncio.gather(
        _summarise(
            clients,
            pipeline,
            starter,
            pause=pause,
            running=running,
            costs=costs,
            partitions=partitions,
            now=now,
        ),
        asyncio.to_thread(_champion, clients, pipeline),
    )
    return PipelineDetail(
        **dict(summary),
        container=pipeline.source.container,
        prefix=pipeline.source.prefix,
        marker=pipeline.source.marker,
        zones=zones,
        champion=champion,
        champion_problem=problem,
    )


async def _summarise(
    clients: Clients,
    pipeline: Pipeline,
    starter: DurableOrchestrationClient,
    *,
    pause: Pause | None,
    running: Sequence[RunSummary],
    costs: tuple[str | None, Sequence[CostState]],
    partitions: Sequence[str | None],
    now: datetime,
) -> tuple[PipelineSummary, list[ZoneState]]:
    (newest, success), zones = await asyncio.gather(
        asyncio.to_thread(_last_runs, clients, pipeline),
        asyncio.gather(
            *(
                _read_zone(clients, pipeline, starter, partition, pause, now)
                for partition in partitions
            )
        ),
    )
    state, sentence = _state(pipeline, newest, running, zones)
    if pause is not None:
        state, sentence = "paused", sentences.of_paused(pause, under_way=state, sentence=sentence)
    due = newest.next_attempt_at if newest is not None and state == "retrying" else None
    spent = [each for each in costs[1] if each.pipeline == pipeline.name]
    summary = PipelineSummary(
        name=pipeline.name,
        state=state,
        sentence=sentence,
        paused=None if pause is None else Paused.model_validate(pause),
        last_run=newest,
        last_success=success,
        running=list(running),
        next_attempt_at=due,
        currency=costs[0],
        costs=spent,
        no_cost=None if spent else sentences.of_no_cost(pipeline, has_prices=costs[0] is not None),
        missing_settings=missing_settings(clients.settings, pipeline),
    )
    return summary, [zone for zone, _, _ in zones]


def _state(
    pipeline: Pipeline,
    newest: RunSummary | None,
    running: Sequence[RunSummary],
    zones: Sequence[tuple[ZoneState, str, bool]],
) -> tuple[PipelineState, str]:
    """The most urgent state with its sentence: a batch that needs a person, then active work."""
    held = next((sentence for _, sentence, needs_person in zones if needs_person), None)
    if held is not None:
        return "needs-a-human", held
    if running:
        return "training", sentences.of_run(running[0], pipeline)
    settling = next((text for zone, text, _ in zones if zone.phase == "settling"), None)
    if settling is not None:
        return "settling", settling
    if newest is not None and newest.state == "retrying" and newest.next_attempt_at is not None:
        return "retrying", sentences.of_retry(newest, newest.next_attempt_at, pipeline)
    if newest is not None and newest.state in ("failed", "rejected"):
        error = newest.error
        return "needs-a-human", sentences.of_given_up(newest, remedy(error and error.type))
    return "idle", zones[0][1]


async def _read_zone(
    clients: Clients,
    pipeline: Pipeline,
    starter: DurableOrchestrationClient,
    partition: str | None,
    pause: Pause | None,
    now: datetime,
) -> tuple[ZoneState, str, bool]:
    """The state of a zone, a sentence about it, and whether it waits for a person."""
    instance, activity, last = await asyncio.gather(
        starter.get_status(landing_instance(pipeline.name, partition)),
        asyncio.to_thread(
            read_zone_activity, clients, ReadZoneActivity(pipeline=pipeline, partition=partition)
        ),
        asyncio.to_thread(last_batch, clients, pipeline.name, partition),
    )
    status = parsed(instance.custom_status) if is_live(instance) else None
    landing = LandingStatus.from_dict(status) if status else None
    held = None
    if last is not None and last.dataset != last.last_trained:
        held = await asyncio.to_thread(_held, clients, pipeline, last, pause)
    zone = ZoneState(
        partition=partition,
        phase="idle" if landing is None else landing.phase,
        newest_event_at=activity.newest_event_at,
        listed_from=None if last is None else last.dataset.frozen_at,
        held=held,
    )
    if landing is not None and landing.phase == "settling":
        opened_at = landing.opened_at
        return zone, sentences.of_settling(pipeline, activity, opened_at=opened_at, now=now), False
    if last is not None and held is not None and held.reason != "paused":
        return zone, sentences.of_held(last, held.message), True
    return zone, sentences.of_idle(pipeline, last), False


def _held(
    clients: Clients, pipeline: Pipeline, last: LastBatch, pause: Pause | None
) -> HeldSummary | None:
    """The last batch of a zone if it is held, for a person to decide or for a pause."""
    version = last.dataset.version
    held = read_held(clients, pipeline.name, version)
    if held is None or is_released(clients, pipeline.name, version):
        return None
    if held.reason == "paused" and pause is None:
        return None  # the pause has ended: its zone is listed again
    return HeldSummary(
        dataset_version=version,
        blobs=held.dataset.blobs,
        reason=held.reason,
        message=held.message,
    )


def _last_runs(clients: Clients, pipeline: Pipeline) -> tuple[RunSummary | None, RunSummary | None]:
    """The newest run, and the newest successful run."""
    newest = next(iter(_runs(clients, pipeline, limit=1)), None)
    if newest is not None and newest.state == "succeeded":
        return newest, newest
    return newest, next(iter(_runs(clients, pipeline, limit=1, states=("succeeded",))), None)


def _runs(
    clients: Clients,
    pipeline: Pipeline,
    *,
    limit: int,
    states: Sequence[RunState] = (),
) -> Sequence[RunSummary]:
    page = list_runs(clients.records, pipeline=pipeline.name, states=states, limit=limit)
    return [RunSummary.model_validate(run) for run in page.runs]


def _partitions(clients: Clients, pipeline: Pipeline) -> Sequence[str | None]:
    if pipeline.source.batch != "partition":
        return [None]
    events = list_newest_events(clients, pipeline.name)
    newest = sorted(events, key=events.__getitem__, reverse=True)
    return newest[:ZONES_LIMIT] or [None]


def _champion(clients: Clients, pipeline: Pipeline) -> tuple[Champion | None, str | None]:
    try:
        found = find_champion(clients, pipeline)
    except (AzureError, LandfallError) as error:
        return None, f"Azure ML could not be asked: {type(error).__name__}"
    if found is None:
        return None, None
    return Champion(version=found.version), None
