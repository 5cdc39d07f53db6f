"""How every batch ended: which dataset was frozen, which run it started or met.

Beside the history there is one record of the last batch of each zone or partition. It says what the
last listing saw, and what was trained on last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from handlers.configuration import record_store
from handlers.configuration.clients import Clients
from handlers.durable.activity_adapter import activity
from handlers.telemetry import metrics
from handlers.telemetry.spans import of_batch
from orchestrations.contracts.base import Done
from orchestrations.contracts.landing import (
    BatchOutcome,
    CountDataChanged,
    LastBatch,
    RecordBatch,
)

_HISTORY = "batches"
_LAST = "last-batches"
_ZONE = "zone"
# Content that is trained on, or was: what the next batch is compared with.
_TRAINED: frozenset[BatchOutcome] = frozenset({"started", "duplicate"})


@activity
def record_batch(clients: Clients, request: RecordBatch) -> Done:
    """Keep how a batch ended. The same batch gives the same records, however often it is kept."""
    pipeline, dataset = request.result.pipeline, request.dataset
    # The time first, always in UTC: names sort by it. A folder a day: readers list few of them.
    frozen = dataset.frozen_at.astimezone(UTC).isoformat(timespec="milliseconds")
    name = f"{_day(pipeline, dataset.frozen_at)}{frozen}_{request.batch}.json"
    record_store.replace(clients.records, name, request.to_dict())

    def follow(last: LastBatch | None) -> LastBatch | None:
        if last is not None and last.dataset.frozen_at > dataset.frozen_at:
            return None  # a caller's request overtook this one
        is_trained = request.result.outcome in _TRAINED
        return LastBatch(
            batch=request.batch,
            dataset=dataset,
            marker_at=request.marker_at,
            last_trained=dataset if is_trained else last and last.last_trained,
            data_changed_in_a_row=0 if last is None else last.data_changed_in_a_row,
        )

    _update_last(clients, pipeline, dataset.partition, follow)
    clients.telemetry.send(of_batch(request))
    clients.telemetry.record(metrics.of_batch(request))
    return Done()


@activity
def count_data_changed(clients: Clients, request: CountDataChanged) -> Done:
    """Keep how many runs in a row have ended because their data was overwritten."""

    def count(last: LastBatch | None) -> LastBatch | None:
        assert last is not None, "a batch is recorded before it is trained on"
        return last.model_copy(update={"data_changed_in_a_row": request.in_a_row})

    _update_last(clients, request.pipeline, request.dataset.partition, count)
    return Done()


def last_batch(clients: Clients, pipeline: str, partition: str | None = None) -> LastBatch | None:
    """The batch of a zone or partition that was frozen last, if there was any."""
    document = record_store.read(clients.records, _last_name(pipeline, partition))
    return None if document is None else LastBatch.from_dict(document)


@dataclass(frozen=True)
class LastListing:
    """Facts of the last batch of a zone or partition that need no read of its record."""

    listed_from: datetime
    marker_at: datetime | None


def list_last_batches(clients: Clients) -> Mapping[str, Mapping[str | None, LastListing]]:
    """Pipeline → partition → its last batch; None stands for the whole zone."""
    found: dict[str, dict[str | None, LastListing]] = defaultdict(dict)
    for blob in clients.records.list_blobs(name_starts_with=f"{_LAST}/", include=["metadata"]):
        _, pipeline, key = blob.name.removesuffix(".json").split("/", 2)
        marker_at = blob.metadata.get("marker_at")
        found[pipeline][None if key == _ZONE else key] = LastListing(
            listed_from=datetime.fromisoformat(blob.metadata["frozen_at"]),
            marker_at=datetime.fromisoformat(marker_at) if marker_at else None,
        )
    return found


def batches_since(clients: Clients, pipeline: str, moment: datetime) -> Iterator[str]:
    """The names of the records of batches that were frozen then or later, the oldest first.

    Costs a listing of the days that have batches, and one of each day that the reader comes to.
    """
    first = _day(pipeline, moment)
    for day in _days(clients, pipeline):
        if day >= first:
            names = sorted(clients.records.list_blob_names(name_starts_with=day))
            yield from (name for name in names if frozen_at(name) >= moment)


def newest_batches(clients: Clients, pipeline: str) -> Iterator[str]:
    """The names of the records of all batches, the newest first; costs the same."""
    for day in reversed(_days(clients, pipeline)):
        yield from sorted(clients.records.list_blob_names(name_starts_with=day), reverse=True)


def read_batch(clients: Clients, name: str) -> RecordBatch:
    """The record of that name."""
    document = record_store.read(clients.records, name)
    assert document is not None, f"records of batches are never deleted, but {name} was"
    return RecordBatch.from_dict(document)


def frozen_at(name: str) -> datetime:
    """When the batch of that name was frozen, rounded down to milliseconds."""
    return datetime.fromisoformat(name.rpartition("/")[2].partition("_")[0])


def _day(pipeline: str, moment: datetime) -> str:
    return f"{_HISTORY}/{pipeline}/{moment.astimezone(UTC):%Y-%m-%d}/"


def _days(clients: Clients, pipeline: str) -> Sequence[str]:
    folders = clients.records.walk_blobs(name_starts_with=f"{_HISTORY}/{pipeline}/")
    return sorted(folder.name for folder in folders)


def _last_name(pipeline: str, partition: str | None) -> str:
    return f"{_LAST}/{pipeline}/{partition or _ZONE}.json"


def _update_last(
    clients: Clients,
    pipeline: str,
    partition: str | None,
    change: Callable[[LastBatch | None], LastBatch | None],
) -> None:
    def changed(document: Any | None) -> Any | None:
        after = change(None if document is None else LastBatch.from_dict(document))
        return None if after is None else after.to_dict()

    record_store.update(clients.records, _last_name(pipeline, partition), changed, _shown)


def _shown(document: Any) -> dict[str, str]:
    last = LastBatch.from_dict(document)
    shown = {"frozen_at": last.dataset.frozen_at.isoformat()}
    if last.marker_at is not None:
        shown["marker_at"] = last.marker_at.isoformat()
    return shown
