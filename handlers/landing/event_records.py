"""What is kept of events: the newest one of a zone, and the log for `explain`.

The record of the newest event costs two requests, whatever the size of the zone. It is a hint,
since an event can be late or lost; the listing that freezes a batch is authoritative.

The log has one append blob per hour. It is informational: an event that is delivered twice is
logged twice, with the same id.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from azure.core import MatchConditions
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)

from handlers.landing.holding import has_released_hold
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

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

logger = logging.getLogger(__name__)
Decision = Literal["opened", "merged", "late", "filtered", "rejected"]
"""`opened` a landing, or `merged` into an open one; `late`: the last listing saw the blob."""
_NEWEST = "newest-events"
_ZONE = "zone"
_FIELD = "newest_event_at"
_LOG = "events"
UNREADABLE = "_unreadable"
"""Used instead of a pipeline's name for events that could not be parsed."""
# https://learn.microsoft.com/azure/storage/blobs/scalability-targets: an append blob has 50,000
# blocks, and a block has 4 MiB in every version of the service.
BLOCK_LIMIT_BYTES = 4 * 1024 * 1024
_BLOCK_COUNT_EXCEEDED = "BlockCountExceedsLimit"


@activity
def read_zone_activity(clients: Clients, request: ReadZoneActivity) -> SettlingZone:
    """The times of a zone's newest event and marker, its rules, and whether a person released it.

    Raises:
        InvalidPipeline: the pipeline is not deployed.
    """
    pipeline = deployed_pipeline(clients, request.pipeline)
    activity = zone_activity(clients, pipeline, request.partition)
    return SettlingZone(
        **dict(activity),
        rules=SettlingRules.of(pipeline),
        is_released=has_released_hold(clients, pipeline.name, request.partition),
    )


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
    return _list(clients, f"{_NEWEST}/{pipeline}/").get(pipeline, {})


def list_all_newest_events(clients: Clients) -> Mapping[str, Mapping[str | None, datetime]]:
    """Pipeline → the result of `list_newest_events`, with one listing for all pipelines."""
    return _list(clients, f"{_NEWEST}/")


def _list(clients: Clients, prefix: str) -> Mapping[str, Mapping[str | None, datetime]]:
    newest: dict[str, dict[str | None, datetime]] = defaultdict(dict)
    for blob in clients.records.list_blobs(name_starts_with=prefix, include=["metadata"]):
        _, pipeline, key = blob.name.removesuffix(".json").split("/", 2)
        event_at = datetime.fromisoformat(blob.metadata[_FIELD])
        newest[pipeline][None if key == _ZONE else key] = event_at
    return newest


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
    return f"{_NEWEST}/{pipeline}/{partition or _ZONE}.json"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event and the decision on it."""

    event_id: str
    change: str
    blob: str
    """The full name in the container, or the subject of an event that could not be parsed."""
    etag: str
    event_time: str
    decided_at: str
    decision: Decision
    reason: str


def append_to_log(
    records: ContainerClient, pipeline: str, entries: Sequence[Entry], *, at: datetime
) -> None:
    """Log the decisions of one moment on events of a pipeline, or of `UNREADABLE`.

    Sends one request per block.
    """
    for block in _blocks(entries):
        _append_block(records, _hour(pipeline, at), block)


def read_log(
    records: ContainerClient, pipeline: str, blob: str, *, since: datetime, until: datetime
) -> Iterator[Entry]:
    """The entries about a blob in a time span, oldest hour first.

    Costs a listing and a download of the span's hours, so keep the span short.
    """
    # The name as `json.dumps` encodes it; lines without it are not parsed.
    wanted = json.dumps(blob).encode()
    first, last = _hour(pipeline, since), _hour(pipeline, until)
    names = records.list_blob_names(name_starts_with=f"{_LOG}/{pipeline}/")
    for name in sorted(name for name in names if first <= name.rpartition("_")[0] <= last):
        for line in records.download_blob(name).readall().split(b"\n"):
            if wanted in line:
                entry = Entry(**json.loads(line))
                if entry.blob == blob:
                    yield entry


def list_logs(records: ContainerClient, pipelines: Iterable[str]) -> list[str]:
    """The names of the logs of some pipelines, and of events that could not be parsed."""
    folders = [f"{_LOG}/{each}/" for each in (*pipelines, UNREADABLE)]
    return [name for each in folders for name in records.list_blob_names(name_starts_with=each)]


def erase_from_log(records: ContainerClient, name: str, blobs: Collection[str]) -> None:
    """Remove the entries about blobs, by their full names, from a log.

    Entries that are appended meanwhile are kept. If the process dies in between, later entries of
    that hour are lost, which are informational.
    """
    log = records.get_blob_client(name)
    while True:
        try:
            download = log.download_blob()
            lines = download.readall().splitlines(keepends=True)
            kept = [line for line in lines if not _is_about(line, blobs)]
            if len(kept) == len(lines):
                return
            log.create_append_blob(**record_store.unchanged(download.properties.etag))
        except ResourceNotFoundError:  # retention has removed it
            return
        except ResourceModifiedError:
            continue
        for block in _joined(kept):
            log.append_block(block)
        return


def _is_about(line: bytes, blobs: Collection[str]) -> bool:
    subject = json.loads(line)["blob"]
    # An event that could not be parsed has its subject: /blobServices/…/containers/<c>/blobs/<b>
    return subject in blobs or subject.partition("/blobs/")[2] in blobs


def _hour(pipeline: str, at: datetime) -> str:
    return f"{_LOG}/{pipeline}/{at.astimezone(UTC):%Y-%m-%dT%H}"


def _blocks(entries: Sequence[Entry]) -> Iterator[bytes]:
    # All fields are strings; `asdict` would copy each and take three times as long.
    return _joined(json.dumps(vars(entry)).encode() + b"\n" for entry in entries)


def _joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    block: list[bytes] = []
    size = 0
    for line in lines:
        if block and size + len(line) > BLOCK_LIMIT_BYTES:
            yield b"".join(block)
            block, size = [], 0
        block.append(line)
        size += len(line)
    if block:
        yield b"".join(block)


def _append_block(records: ContainerClient, hour: str, block: bytes) -> None:
    """Append to the hour's blob, or to its next blob if it has the maximum number of blocks."""
    number = 0
    while True:
        blob = records.get_blob_client(f"{hour}_{number:04d}.jsonl")
        try:
            blob.append_block(block)
        except ResourceNotFoundError:
            with contextlib.suppress(ResourceExistsError):
                blob.create_append_blob(match_condition=MatchConditions.IfMissing)
        except HttpResponseError as error:
            if getattr(error, "error_code", None) != _BLOCK_COUNT_EXCEEDED:
                raise
            number += 1
        else:
            return
