"""Landings that are missing or broke: of zones, of claims, and of requests over the API.

To find the zones, a round costs four listings of records for all zones, and one request per zone
with a marker; the number of blobs does not matter. A full listing of each zone is due once a day:
the landing does it, in parts.

The caller of a request cannot repeat it, because its idempotency key is used. So a request whose
landing failed is started again under the same id. That is safe: the new landing adopts the effects
of the failed one, and if that one claimed the dataset, the run of the claim is started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus
from pydantic import ValidationError

from handlers.landing.batch_contents import list_partitions, list_quarantined
from handlers.landing.batch_records import (
    LastListing,
    held_zones,
    list_last_batches,
    zones_past_age,
)
from handlers.landing.blob_created import ensure_landing
from handlers.landing.dataset_claims import list_claims_without_run
from handlers.landing.event_records import list_all_newest_events, marker_written_at
from handlers.landing.holding import read_pause, released_zones
from handlers.landing.manifest_parts import discard, list_freezes, parts_folder
from handlers.landing.zone_troubles import close_troubles, read_troubles
from handlers.notify.outbox import publish_alert, trouble
from handlers.operate.api.pausing import land_held_zones
from handlers.operate.reconciliation.rounds import Round
from handlers.platform import record_store
from handlers.platform.bulkheads import AZURE_ML, BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.instances import broken_failure, exists, is_broken, is_live, parsed
from handlers.platform.run_records import read_claim
from handlers.training.jobs import get_job
from handlers.training.retries import start_attempt
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Contract
from orchestrations.contracts.landing import (
    ClaimedRun,
    LandingRequest,
    LandingStatus,
    OpenedBy,
    ZoneActivity,
)
from orchestrations.contracts.training import GetJob
from orchestrations.errors import JobFailed
from orchestrations.landing.landing import landing
from orchestrations.landing.settling import has_more, was_listed
from orchestrations.names import (
    REQUEST_PREFIX,
    alert_id,
    batch_id,
    freezing_instance,
    landing_instance,
    landing_of,
)

if TYPE_CHECKING:  # in version 2 of the SDK it is in another module
    from azure.durable_functions.models.DurableOrchestrationStatus import DurableOrchestrationStatus

# Long enough for an app that was down for days. Claims are kept longer than instances of runs: an
# older claim without an instance does not mean that its run was lost.
CLAIM_AGE_LIMIT = timedelta(days=30)
LISTING_INTERVAL = timedelta(days=1)
"""Events can be lost, so every zone is listed at this interval even without events."""
NEWEST_PARTITIONS = 3
"""If partitions are batches, how many of the newest ones are checked for a marker and listed daily.
Older partitions are listed only after an event."""
# A new freeze has parts before its instance is started. If it is started later than this, it finds
# no parts and fails; its landing is then opened again.
GRACE = timedelta(days=1)
RESTARTS = 3
REQUEST_FAILED = "request-failed"

Closed = Literal["started again", "alerted"]


@dataclass(frozen=True)
class ZoneRecords:
    """The records of all zones: pipeline → partition (None: the whole zone) → record."""

    newest_events: Mapping[str, Mapping[str | None, datetime]]
    last_batches: Mapping[str, Mapping[str | None, LastListing]]
    quarantined: Mapping[str, Mapping[str | None, datetime]]
    """When files were last put into quarantine."""
    held: Collection[str]
    """The pipelines with a held batch."""


def read_zone_records(clients: Clients) -> ZoneRecords:
    """Read the records of all zones, with four listings."""
    # Batches last: one that is recorded between the listings covers these events.
    newest_events, quarantined = list_all_newest_events(clients), list_quarantined(clients)
    last_batches = list_last_batches(clients)
    return ZoneRecords(newest_events, last_batches, quarantined, held=held_zones(clients))


def partitions_to_land(
    clients: Clients, pipeline: Pipeline, records: ZoneRecords, *, now: datetime
) -> Sequence[str | None]:
    """Partitions (None: the whole zone) that need a landing.

    These are partitions with an event or marker after their last listing, partitions of which files
    were put into quarantine since, partitions that were never listed, partitions that were not
    listed for a day, and partitions whose batch has waited for more data for the maximum age.
    """
    quarantined = records.quarantined.get(pipeline.name, {})
    events = records.newest_events.get(pipeline.name, {})
    last_batches = records.last_batches.get(pipeline.name, {})
    watched: list[str | None] = [None]
    partitions: set[str | None] = {None}
    if pipeline.source.batch == "partition":
        folders = sorted(list_partitions(clients, pipeline))
        watched = [each.key for each in folders[-NEWEST_PARTITIONS:]]
        partitions = {each.key for each in folders} | events.keys() - {None}
    past_age = zones_past_age(clients, pipeline, now=now)
    due: list[str | None] = []
    for partition in sorted(partitions, key=str):
        last = last_batches.get(partition)
        event = events.get(partition)
        if last is None:
            # A partition found by a listing has blobs.
            if partition is not None or event is not None or _has_blobs(clients, pipeline):
                due.append(partition)
            continue
        if partition in past_age:
            due.append(partition)
            continue
        refused_at = quarantined.get(partition)
        if refused_at is not None and not was_listed(refused_at, listed_from=last.listed_from):
            due.append(partition)
            continue
        is_watched = partition in watched
        if not is_watched and (event is None or event <= last.listed_from):
            continue
        activity = ZoneActivity(
            newest_event_at=event, marker_at=marker_written_at(clients, pipeline, partition)
        )
        if has_more(activity, listed_from=last.listed_from, marker_at=last.marker_at) or (
            is_watched and now - last.listed_from > LISTING_INTERVAL
        ):
            due.append(partition)
    return due


def _has_blobs(clients: Clients, pipeline: Pipeline) -> bool:
    """Whether there is a blob below the pipeline's prefix; one request."""
    container = clients.blobs.get_container_client(pipeline.source.container)
    names = container.list_blob_names(name_starts_with=pipeline.source.prefix, results_per_page=1)
    return next(iter(names), None) is not None


async def check_zones(current: Round, pipelines: Iterable[Pipeline]) -> None:
    """Start the landing of every zone that needs one."""
    records = await BACKGROUND.ask(read_zone_records, current.clients)
    await current.each_pipeline("zone of", pipelines, partial(_check_zone, records=records))


async def _check_zone(current: Round, pipeline: Pipeline, *, records: ZoneRecords) -> None:
    clients, starter = current.clients, current.starter
    if pipeline.name in records.held:
        for partition in await BACKGROUND.ask(released_zones, clients, pipeline.name):
            if pipeline.has_zone(partition):
                await _land(current, pipeline, partition, opened_by="release")
    if await BACKGROUND.ask(read_pause, clients, pipeline.name) is not None:
        return
    current.summary.landings_started += await land_held_zones(clients, starter, pipeline)
    due = await BACKGROUND.ask(partitions_to_land, clients, pipeline, records, now=current.now)
    for partition in dict.fromkeys((*due, *await _failing_zones(current, pipeline))):
        await _land(current, pipeline, partition, opened_by="reconciliation")


async def _land(
    current: Round, pipeline: Pipeline, partition: str | None, *, opened_by: OpenedBy
) -> None:
    trace = current.clients.telemetry.new_trace()
    ensured = await ensure_landing(
        current.clients, current.starter, pipeline, partition, opened_by=opened_by, trace=trace
    )
    if ensured.opened:
        current.summary.landings_started.append(landing_instance(pipeline.name, partition))


async def _failing_zones(current: Round, pipeline: Pipeline) -> list[str | None]:
    """The zones whose landing failed, and has frozen no batch since."""
    clients, name, failing = current.clients, pipeline.name, list[str | None]()
    troubles = await BACKGROUND.ask(read_troubles, clients, name)
    for partition, opened in troubles.get(name, {}).items():
        if not any(each.kind == "landing-failed" for each in opened):
            continue
        instance = await current.starter.get_status(landing_instance(name, partition))
        if is_broken(instance) and pipeline.has_zone(partition):
            failing.append(partition)
        elif not is_live(instance):
            # The landing ended without a batch, as an overdue one does; or the zone does not exist.
            await BACKGROUND.ask(
                close_troubles,
                clients,
                name,
                partition,
                until=current.now,
                kinds=("landing-failed",),
            )
    return failing


async def check_claims(current: Round, pipeline: Pipeline) -> None:
    """Start the run of every claim that has none."""
    frozen_after = current.now - CLAIM_AGE_LIMIT
    names = await BACKGROUND.ask(
        list_claims_without_run, current.clients, pipeline.name, frozen_after=frozen_after
    )
    for name in names:
        await current.attempt(name, _check_claim, current, name)


async def _check_claim(current: Round, name: str) -> None:
    claimed = await BACKGROUND.ask(read_claim, current.clients, name)
    if claimed is None or claimed.request.dataset.frozen_at <= current.now - CLAIM_AGE_LIMIT:
        return
    run, starter = claimed.claim.run, current.starter
    if exists(await starter.get_status(run)) or await _is_in_hand(starter, claimed):
        return
    try:
        await AZURE_ML.ask(get_job, current.clients, GetJob(job=run))
    except JobFailed:  # there is no job: the run was never started
        if await start_attempt(starter, claimed.request):
            current.summary.runs_started.append(run)


async def _is_in_hand(starter: DurableOrchestrationClient, claimed: ClaimedRun) -> bool:
    """Whether the landing that made the claim is still active, in the same batch."""
    landing_id = landing_of(claimed.claim.batch)
    instance = await starter.get_status(landing_id)
    if not is_live(instance):
        return False
    shown = parsed(instance.custom_status)
    if not shown:
        return True
    opened_at = LandingStatus.from_dict(shown).opened_at
    return batch_id(landing_id, opened_at) == claimed.claim.batch


async def discard_abandoned_parts(current: Round) -> None:
    """Discard the parts of freezes without a live instance."""
    freezes = await BACKGROUND.ask(list_freezes, current.clients.records)
    for (pipeline, freeze), written_at in freezes.items():
        instance = freezing_instance(pipeline, freeze)
        if current.now - written_at < GRACE or is_live(await current.starter.get_status(instance)):
            continue
        folder = parts_folder(pipeline, freeze)
        await BACKGROUND.ask(discard, current.clients.records, folder)
        current.summary.freezes_discarded.append(instance)


class _Broken(Contract):
    """The record of a request whose landing broke."""

    restarts: int = 0
    is_alerted: bool = False


def is_broken_request(instance: DurableOrchestrationStatus) -> bool:
    """Whether the instance is the landing of a caller's request that failed or was terminated."""
    return (
        is_broken(instance)
        and instance.name == landing.__name__
        and str(instance.instance_id).startswith(REQUEST_PREFIX)
    )


async def close_request(
    clients: Clients,
    starter: DurableOrchestrationClient,
    instance: DurableOrchestrationStatus,
    *,
    now: datetime,
) -> Closed | None:
    """Restart a request whose landing failed, or alert operators; None if they were alerted before.

    If the process dies between record and effect, one restart is lost, or the alert is sent again
    with the same id. `is_broken_request` must be true for the instance.
    """
    request_id = str(instance.instance_id)
    name = f"requests/{request_id}.json"
    document = await BACKGROUND.ask(record_store.read, clients.records, name)
    broken = _Broken() if document is None else _Broken.from_dict(document)
    if broken.is_alerted:
        return None
    whole = await starter.get_status(request_id, show_input=True)
    request = _parse(whole)
    # Passed on unchanged: a worker of an older release cannot parse the input of a newer one.
    restart_input = parsed(whole.input_)
    has_failed = instance.runtime_status == OrchestrationRuntimeStatus.Failed
    if has_failed and restart_input is not None and broken.restarts < RESTARTS:
        counted = _Broken(restarts=broken.restarts + 1)
        await BACKGROUND.ask(record_store.replace, clients.records, name, counted.to_dict())
        await starter.start_new(landing.__name__, request_id, restart_input)
        return "started again"
    pipeline = None if request is None else request.pipeline
    alert = trouble(
        REQUEST_FAILED,
        alert_id=alert_id(REQUEST_FAILED, request_id),
        severity="error",
        at=now,
        data={
            "request": request_id,
            "pipeline": pipeline,
            "restarts": broken.restarts,
            "message": broken_failure(whole).message,
        },
        pipeline=pipeline,
    )
    await BACKGROUND.ask(publish_alert, clients, alert)
    alerted = broken.model_copy(update={"is_alerted": True})
    await BACKGROUND.ask(record_store.replace, clients.records, name, alerted.to_dict())
    return "alerted"


def _parse(instance: DurableOrchestrationStatus) -> LandingRequest | None:
    try:
        return LandingRequest.from_dict(parsed(instance.input_))
    except ValidationError:  # written by a release with another schema
        return None
