"""Find zones that need a landing though no event opened one, and freezes that nobody finishes.

A round costs three listings of records for all zones, and one request per zone with a marker; the
number of blobs does not matter. A full listing of each zone is due once a day: the landing does it,
in parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from azure.durable_functions import DurableOrchestrationClient

from handlers.landing.batch_records import LastListing, list_last_batches
from handlers.landing.hold_records import zones_past_age
from handlers.landing.manifest_parts import discard, list_freezes, parts_folder
from handlers.landing.newest_events import list_all_newest_events, marker_written_at
from handlers.landing.partition_folders import list_partitions
from handlers.landing.quarantine import list_quarantined
from handlers.platform.bulkheads import BACKGROUND
from handlers.platform.clients import Clients
from handlers.platform.durable.instances import is_live
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import ZoneActivity
from orchestrations.landing.settling import has_more, was_listed
from orchestrations.names import freezing_instance

LISTING_INTERVAL = timedelta(days=1)
"""Events can be lost, so every zone is listed at this interval even without events."""
NEWEST_PARTITIONS = 3
"""If partitions are batches, how many of the newest ones are checked for a marker and listed daily.
Older partitions are listed only after an event."""
# A new freeze has parts before its instance is started. If it is started later than this, it finds
# no parts and fails; its landing is then opened again.
GRACE = timedelta(days=1)


@dataclass(frozen=True)
class ZoneRecords:
    """The records of all zones: pipeline → partition (None: the whole zone) → record."""

    newest_events: Mapping[str, Mapping[str | None, datetime]]
    last_batches: Mapping[str, Mapping[str | None, LastListing]]
    quarantined: Mapping[str, Mapping[str | None, datetime]]
    """When files were last put into quarantine."""


def read_zone_records(clients: Clients) -> ZoneRecords:
    """Read the records of all zones, with three listings."""
    # Batches last: one that is recorded between the listings covers these events.
    newest_events, quarantined = list_all_newest_events(clients), list_quarantined(clients)
    return ZoneRecords(newest_events, list_last_batches(clients), quarantined)


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
    known: set[str | None] = {None}
    if pipeline.source.batch == "partition":
        folders = sorted(list_partitions(clients, pipeline))
        watched = [each.key for each in folders[-NEWEST_PARTITIONS:]]
        known = {each.key for each in folders} | events.keys() - {None}
    past_age = zones_past_age(clients, pipeline, now=now)
    due: list[str | None] = []
    for partition in sorted(known, key=str):
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


async def discard_abandoned_parts(
    clients: Clients, starter: DurableOrchestrationClient, *, now: datetime
) -> list[str]:
    """Discard the parts of freezes without a live instance; return the instances' names."""
    discarded: list[str] = []
    freezes = await BACKGROUND.ask(list_freezes, clients.records)
    for (pipeline, freeze), written_at in freezes.items():
        instance = freezing_instance(pipeline, freeze)
        if now - written_at < GRACE or is_live(await starter.get_status(instance)):
            continue
        folder = parts_folder(pipeline, freeze)
        await BACKGROUND.ask(discard, clients.records, folder)
        discarded.append(instance)
    return discarded
