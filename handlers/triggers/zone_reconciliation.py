"""Which zones need a landing though no event opened one: a part of the timer `reconcile`.

A round costs a few requests per zone, however much is in it. A whole listing is due once a day, and
is done by the landing, in parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from handlers.configuration.clients import Clients
from handlers.landing_zone.batch_records import list_last_batches
from handlers.landing_zone.newest_events import list_newest_events, read_zone_activity
from handlers.landing_zone.partition_folders import list_partitions
from orchestrations.contracts.landing import ReadZoneActivity
from orchestrations.pipeline import Pipeline
from orchestrations.settling import has_more

LISTING_INTERVAL = timedelta(days=1)
"""Events can be lost: after so long a zone is listed without any."""
NEWEST_PARTITIONS = 3
"""Of a zone whose partitions are batches, so many are watched for a marker without an event, and
are listed daily. Older ones are listed when an event comes."""


def partitions_to_land(
    clients: Clients, pipeline: Pipeline, *, now: datetime
) -> Sequence[str | None]:
    """What settles as one and has more than its last batch: partitions, or None for the whole zone.

    That is what has a newer event or marker than its last listing could see, what was never listed,
    and what was not listed for a day.

    Args:
        clients: for storage.
        pipeline: whose zone.
        now: in UTC.
    """
    events = list_newest_events(clients, pipeline.name)
    last_batches = list_last_batches(clients, pipeline.name)
    watched: list[str | None] = [None]
    known: set[str | None] = {None}
    if pipeline.source.batch == "partition":
        folders = sorted(list_partitions(clients, pipeline))
        watched = [each.key for each in folders[-NEWEST_PARTITIONS:]]
        known = {each.key for each in folders} | events.keys() - {None}
    due: list[str | None] = []
    for partition in sorted(known, key=str):
        last = last_batches.get(partition)
        event = events.get(partition)
        if last is None:
            # A partition that is listed has blobs.
            if partition is not None or event is not None or _has_blobs(clients, pipeline):
                due.append(partition)
            continue
        is_watched = partition in watched
        if not is_watched and (event is None or event <= last.listed_from):
            continue
        activity = read_zone_activity(
            clients, ReadZoneActivity(pipeline=pipeline, partition=partition)
        )
        if has_more(activity, listed_from=last.listed_from, marker_at=last.marker_at) or (
            is_watched and now - last.listed_from > LISTING_INTERVAL
        ):
            due.append(partition)
    return due


def _has_blobs(clients: Clients, pipeline: Pipeline) -> bool:
    """Whether there is anything below a pipeline's prefix; one request."""
    container = clients.blobs.get_container_client(pipeline.source.container)
    names = container.list_blob_names(name_starts_with=pipeline.source.prefix, results_per_page=1)
    return next(iter(names), None) is not None
