"""The time of the newest event in a zone, from a small record, and of its marker.

A read costs two requests, whatever the size of the zone. The record is a hint, since an event can
be late or lost; the listing that freezes a batch is authoritative.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime

from azure.core.exceptions import ResourceNotFoundError

from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.configuration.configurations import deployed_pipeline
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.landing import (
    ReadZoneActivity,
    SettlingRules,
    SettlingZone,
    ZoneActivity,
)

_FOLDER = "newest-events"
_ZONE = "zone"
_FIELD = "newest_event_at"


@activity
def read_zone_activity(clients: Clients, request: ReadZoneActivity) -> SettlingZone:
    """The times of a zone's or partition's newest event and of its marker, and the deployed rules.

    Raises:
        InvalidPipeline: the pipeline is not deployed.
    """
    pipeline = deployed_pipeline(clients, request.pipeline)
    activity = zone_activity(clients, pipeline, request.partition)
    return SettlingZone(**dict(activity), rules=SettlingRules.of(pipeline))


def zone_activity(clients: Clients, pipeline: Pipeline, partition: str | None) -> ZoneActivity:
    """The times of a zone's or partition's newest event and of its marker."""
    document = record_store.read(clients.records, _name(pipeline.name, partition))
    return ZoneActivity(
        newest_event_at=None if document is None else datetime.fromisoformat(document[_FIELD]),
        marker_at=marker_written_at(clients, pipeline, partition),
    )


def advance_newest_event(
    clients: Clients, pipeline: str, partition: str | None, event_time: datetime
) -> None:
    """Record the time of an event, unless a newer one is recorded."""
    time = event_time.astimezone(UTC)

    def later(document: dict[str, str] | None) -> dict[str, str] | None:
        if document is not None and datetime.fromisoformat(document[_FIELD]) >= time:
            return None
        return {_FIELD: time.isoformat()}

    record_store.update(clients.records, _name(pipeline, partition), later, lambda kept: kept)


def list_newest_events(clients: Clients, pipeline: str) -> Mapping[str | None, datetime]:
    """Partition → time of its newest event; None stands for the whole zone."""
    return _list(clients, f"{_FOLDER}/{pipeline}/").get(pipeline, {})


def list_all_newest_events(clients: Clients) -> Mapping[str, Mapping[str | None, datetime]]:
    """Pipeline → the result of `list_newest_events`, with one listing for all pipelines."""
    return _list(clients, f"{_FOLDER}/")


def _list(clients: Clients, prefix: str) -> Mapping[str, Mapping[str | None, datetime]]:
    found: dict[str, dict[str | None, datetime]] = defaultdict(dict)
    for blob in clients.records.list_blobs(name_starts_with=prefix, include=["metadata"]):
        _, pipeline, key = blob.name.removesuffix(".json").split("/", 2)
        event_at = datetime.fromisoformat(blob.metadata[_FIELD])
        found[pipeline][None if key == _ZONE else key] = event_at
    return found


def marker_written_at(
    clients: Clients, pipeline: Pipeline, partition: str | None
) -> datetime | None:
    """The time at which the marker of a zone or partition was last written; None without one.

    Sends a request only if the pipeline has a marker.
    """
    source = pipeline.source
    path = source.marker_path(None if partition is None else source.partition(partition))
    if path is None:
        return None
    blob = clients.blobs.get_blob_client(source.container, source.prefix + path)
    try:
        return blob.get_blob_properties().last_modified
    except ResourceNotFoundError:
        return None


def _name(pipeline: str, partition: str | None) -> str:
    return f"{_FOLDER}/{pipeline}/{partition or _ZONE}.json"
