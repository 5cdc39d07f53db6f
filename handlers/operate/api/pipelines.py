"""GET /api/pipelines and GET /api/pipelines/{name}: the state of pipelines, and its reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Self

from azure.core.exceptions import AzureError
from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.batch_records import (
    LastListing,
    held_zones,
    last_batch,
    list_last_batches,
    read_held,
)
from handlers.landing.event_records import list_all_newest_events, zone_activity
from handlers.landing.holding import Pause, is_released, read_pause, read_pauses
from handlers.landing.zone_troubles import Trouble, read_troubles
from handlers.notify.page_links import link_secrets
from handlers.notify.webhooks import parse_receiver, parse_secrets
from handlers.operate.api import sentences
from handlers.operate.api.documents import (
    Champion,
    HeldSummary,
    Paused,
    PipelineDetail,
    PipelineList,
    PipelineSummary,
    RunSummary,
    TroubleSummary,
)
from handlers.operate.api.pipeline_changes import describe_once
from handlers.operate.api.pipeline_state import ZoneFacts, state_of, zones_to_show
from handlers.operate.api.queues import CostState, read_costs
from handlers.platform.bulkheads import AZURE_ML, PART_SECONDS, STORAGE, Unavailable
from handlers.platform.clients import Clients
from handlers.platform.configuration.compute_notes import Notes, notes
from handlers.platform.instances import is_live, parsed
from handlers.platform.run_index import UNFINISHED_STATES, list_runs, list_unfinished_runs
from handlers.platform.settings import KEEP_DAYS, Settings
from handlers.training.champions import find_champion
from orchestrations.configuration.approve import ROLE
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import LandingStatus, LastBatch
from orchestrations.contracts.run_states import RunState
from orchestrations.errors import InvalidSetting, LandfallError
from orchestrations.names import landing_instance

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

    The number of requests does not grow with the number of past runs and, while nothing changes,
    with the number of pipelines.
    """
    describe = partial(_describe_all, clients, pipelines, starter, now=now)
    return await describe_once(clients, starter, pipelines, describe)


async def _describe_all(
    clients: Clients,
    pipelines: Mapping[str, Pipeline],
    starter: DurableOrchestrationClient,
    *,
    now: datetime,
) -> PipelineList:
    costs, pauses, unfinished, zones = await asyncio.gather(
        STORAGE.ask(read_costs, clients, now),
        STORAGE.ask(read_pauses, clients),
        STORAGE.ask(list_unfinished_runs, clients.records),
        STORAGE.ask(_Zones.read, clients),
    )
    described = await asyncio.gather(
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
                shown=zones.shown_zones(pipelines[name]),
                now=now,
            )
            for name in sorted(pipelines)
        )
    )
    return PipelineList(pipelines=[summary for summary, _ in described])


async def get_pipeline(
    clients: Clients, pipeline: Pipeline, starter: DurableOrchestrationClient, *, now: datetime
) -> PipelineDetail:
    """Return one pipeline with its zones and its champion."""
    zones, costs, pause, running = await asyncio.gather(
        STORAGE.ask(_Zones.read, clients),
        STORAGE.ask(read_costs, clients, now),
        STORAGE.ask(read_pause, clients, pipeline.name),
        STORAGE.ask(_runs, clients, pipeline, limit=RUNNING_LIMIT, states=UNFINISHED_STATES),
    )
    (summary, facts), (champion, problem) = await asyncio.gather(
        _summarise(
            clients,
            pipeline,
            starter,
            pause=pause,
            running=running,
            costs=costs,
            shown=zones.shown_zones(pipeline),
            now=now,
        ),
        _champion(clients, pipeline),
    )
    return PipelineDetail(
        **dict(summary),
        container=pipeline.source.container,
        prefix=pipeline.source.prefix,
        marker=pipeline.source.marker,
        parameters=pipeline.parameters,
        zones=[each.document for each in facts],
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
    shown: Mapping[str | None, Sequence[Trouble]],
    now: datetime,
) -> tuple[PipelineSummary, Sequence[ZoneFacts]]:
    (newest, success), zones = await asyncio.gather(
        STORAGE.ask(_last_runs, clients, pipeline),
        asyncio.gather(
            *(
                _read_zone(clients, pipeline, starter, partition, pause, troubles)
                for partition, troubles in shown.items()
            )
        ),
    )
    state, sentence = state_of(pipeline, newest, running, zones, now=now)
    if pause is not None:
        state, sentence = (
            "paused",
            sentences.describe_pause(pause, under_way=state, sentence=sentence),
        )
    due = newest.next_attempt_at if newest is not None and state == "retrying" else None
    spent = [each for each in costs[1] if each.pipeline == pipeline.name]
    noted = _noted(clients.settings, pipeline)
    summary = PipelineSummary(
        name=pipeline.name,
        model=pipeline.model.name,
        endpoint=None if pipeline.deploy is None else pipeline.deploy.endpoint,
        state=state,
        sentence=sentence,
        paused=None if pause is None else Paused.model_validate(pause),
        last_run=newest,
        last_success=success,
        running=list(running),
        next_attempt_at=due,
        currency=costs[0],
        costs=spent,
        no_cost=None
        if spent
        else sentences.explain_missing_cost(pipeline, has_prices=costs[0] is not None),
        missing_settings=missing_settings(clients.settings, pipeline),
        compute_warnings=noted.warnings,
        compute_not_known=noted.not_known,
    )
    return summary, zones


async def _read_zone(
    clients: Clients,
    pipeline: Pipeline,
    starter: DurableOrchestrationClient,
    partition: str | None,
    pause: Pause | None,
    troubles: Sequence[Trouble],
) -> ZoneFacts:
    instance, activity, last = await asyncio.gather(
        starter.get_status(landing_instance(pipeline.name, partition)),
        STORAGE.ask(zone_activity, clients, pipeline, partition),
        STORAGE.ask(last_batch, clients, pipeline.name, partition),
    )
    status = parsed(instance.custom_status) if is_live(instance) else None
    held = None
    # A check of the run may hold a batch that counts as trained on since its run was started.
    if last is not None and (last.dataset != last.last_trained or len(pipeline.jobs) > 1):
        held = await STORAGE.ask(_held, clients, pipeline, last, pause)
    return ZoneFacts(
        partition=partition,
        activity=activity,
        landing=LandingStatus.from_dict(status) if status else None,
        last=last,
        held=held,
        troubles=[
            TroubleSummary.model_validate(each) for each in troubles if each.kind != "batch-held"
        ],
    )


def _held(
    clients: Clients, pipeline: Pipeline, last: LastBatch, pause: Pause | None
) -> HeldSummary | None:
    """The last batch of a zone if it is held, for a person to decide or for a pause."""
    version = last.dataset.version
    held = read_held(clients, pipeline.name, last.dataset)
    if held is None or held.is_released or is_released(clients, pipeline.name, version):
        return None
    ended_by = rule_of_hold(held.reason).ended_by
    if ended_by == "resumption" and pause is None:
        return None  # the pause has ended: its zone is listed again
    return HeldSummary(
        dataset_version=version,
        blobs=held.dataset.blobs,
        reason=held.reason,
        ended_by=ended_by,
        message=held.message,
        batches=held.count,
        since=held.since or held.dataset.frozen_at,
    )


def _last_runs(clients: Clients, pipeline: Pipeline) -> tuple[RunSummary | None, RunSummary | None]:
    """The newest run, and the newest successful run."""
    newest = next(
        (each for each in _runs(clients, pipeline, limit=RUNNING_LIMIT) if not each.reproduces),
        None,
    )
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


@dataclass(frozen=True)
class _Zones:
    """What is known about the zones of all pipelines, from four listings."""

    newest_events: Mapping[str, Mapping[str | None, datetime]]
    last_batches: Mapping[str, Mapping[str | None, LastListing]]
    held: Mapping[str, frozenset[str]]
    troubles: Mapping[str, Mapping[str | None, Sequence[Trouble]]]

    @classmethod
    def read(cls, clients: Clients) -> Self:
        return cls(
            list_all_newest_events(clients),
            list_last_batches(clients),
            held_zones(clients),
            read_troubles(clients),
        )

    def shown_zones(self, pipeline: Pipeline) -> Mapping[str | None, Sequence[Trouble]]:
        """The zones to show, with their troubles; see `zones_to_show`."""
        name = pipeline.name
        listed = {key: each.listed_from for key, each in self.last_batches.get(name, {}).items()}
        events = self.newest_events.get(name, {})
        changed = {
            key: max(each[key] for each in (listed, events) if key in each)
            for key in {*listed, *events}
        }
        troubles = self.troubles.get(name, {})
        # Records of earlier releases are named by versions, which are no partitions.
        held = self.held.get(name, frozenset()) & changed.keys()
        shown = zones_to_show(pipeline, changed, {*troubles, *held}, limit=ZONES_LIMIT)
        return {key: troubles.get(key, ()) for key in shown}


async def _champion(clients: Clients, pipeline: Pipeline) -> tuple[Champion | None, str | None]:
    try:
        champion = await AZURE_ML.ask_within(PART_SECONDS, find_champion, clients, pipeline)
    except (AzureError, LandfallError, Unavailable) as error:
        return None, f"Azure ML could not be asked: {type(error).__name__}"
    if champion is None:
        return None, None
    return Champion(version=champion.version), None


def _noted(settings: Settings, pipeline: Pipeline) -> Notes:
    try:
        regions = settings.regions
    except InvalidSetting:  # a sentence of `missing_settings`
        regions = {}
    return notes(settings.pipelines_folder / pipeline.name, pipeline, regions)


def missing_settings(settings: Settings, pipeline: Pipeline) -> list[str]:
    """A sentence for each setting that is missing or invalid; never a value."""
    missing: dict[str, None] = {}
    for read in _needed(settings, pipeline):
        try:
            read()
        except InvalidSetting as error:
            missing[str(error)] = None
    return list(missing)


def _check_roles(settings: Settings, pipeline: Pipeline) -> None:
    """Roles can only be checked where people sign in.

    Raises:
        InvalidSetting: a question is for a role, and function keys open the API.
    """
    named = [name for rule in pipeline.approve for name in rule.by if name.startswith(ROLE)]
    if named and settings.sign_in != "entra":
        raise InvalidSetting(
            f"app setting API_SIGN_IN: approve.by names {named[0]}, and only entra checks roles"
        )


def _needed(settings: Settings, pipeline: Pipeline) -> Iterator[Callable[[], object]]:
    for name in ("AZUREML_SUBSCRIPTION_ID", "AZUREML_RESOURCE_GROUP", "AZUREML_WORKSPACE_NAME"):
        yield lambda name=name: settings.required(name)
    for name, endpoint in (
        ("DataStorage", "blobServiceUri"),
        ("WorkspaceStorage", "blobServiceUri"),
        ("ServiceBus", "fullyQualifiedNamespace"),
    ):
        yield lambda name=name, endpoint=endpoint: settings.connection(name, endpoint)
    for name in KEEP_DAYS:
        yield lambda name=name: settings.keep_days(name)
    yield lambda: settings.regions
    if pipeline.approve:
        yield lambda: link_secrets(settings)
        yield lambda: _check_roles(settings, pipeline)
    if pipeline.notify.event_grid:
        yield lambda: settings.required("EventGridTopic__endpoint")
    for webhook in pipeline.notify.webhooks:
        yield lambda webhook=webhook: settings.explicit(webhook.url_setting)
        if url := settings.values.get(webhook.url_setting):
            yield lambda url=url, webhook=webhook: parse_receiver(url, setting=webhook.url_setting)
            if secret := webhook.secret_setting:
                yield lambda secret=secret: parse_secrets(
                    settings.values.get(secret, ""), setting=secret
                )
