"""The outcome of every batch: the frozen dataset, and the run that it started or found.

Besides the history, each zone or partition has a record of its last batch (what the last listing
saw, and what was trained on last) and of its hold: `held/<pipeline>/<partition, or zone>.json`.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, dropwhile, islice
from typing import Any, get_args

from azure.core.exceptions import ResourceNotFoundError

from handlers.landing.zone_troubles import close_troubles
from handlers.platform import metrics, record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.clients import Clients
from handlers.platform.spans import batch_spans
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.holds import rule_of_hold
from orchestrations.contracts.landing import (
    CountDataChanged,
    HeldBatch,
    LandingAlert,
    LastBatch,
    RecordBatch,
)
from orchestrations.contracts.outcomes import BatchRule, rule_of_batch, rule_of_trouble
from orchestrations.names import REQUEST_PREFIX, landing_instance, partition_of_landing

_FOLDER = "held/"
_ZONE = "zone"
_HISTORY = "batches"
_LAST = "last-batches"
# A blob is in the first batch that was frozen after its last change, or in one of the next few.
BATCHES_SEARCHED = 20
# A run may be superseded while it is checked, so that one is not enough.
TRAINED_BEFORE = 3


def hold_name(pipeline: str, key: str | None) -> str:
    """The blob name of the record of a partition, or of the whole zone."""
    return f"{_FOLDER}{pipeline}/{key or _ZONE}.json"


def read_hold(clients: Clients, name: str) -> HeldBatch | None:
    """The record of this name, if there is one."""
    document = record_store.read(clients.records, name)
    return None if document is None else HeldBatch.from_dict(document)


def read_holds(clients: Clients, pipeline: str) -> Iterator[tuple[str, HeldBatch]]:
    """Name and record of every hold of a pipeline."""
    names = clients.records.list_blob_names(name_starts_with=f"{_FOLDER}{pipeline}/")
    for name in list(names):
        held = read_hold(clients, name)
        if held is not None:
            yield name, held


def zones_past_age(
    clients: Clients, pipeline: Pipeline, *, now: datetime
) -> Collection[str | None]:
    """Zones or partitions whose batches have waited for more data for the maximum age."""
    age = pipeline.settle.maximum_age_seconds
    if age is None:
        return ()
    latest = now - timedelta(seconds=age)
    return {
        held.dataset.partition
        for _, held in read_holds(clients, pipeline.name)
        if rule_of_hold(held.reason).ended_by == "growth"
        and (held.since or held.dataset.frozen_at) <= latest
    }


def read_held(clients: Clients, pipeline: str, dataset: Dataset) -> HeldBatch | None:
    """The hold whose newest batch is `dataset`, if there is one; it may be released already."""
    # Earlier releases named the record by the version.
    for key in (dataset.partition, dataset.version):
        held = read_hold(clients, hold_name(pipeline, key))
        if held is not None and held.dataset.version == dataset.version:
            return held
    return None


def held_zones(clients: Clients) -> Mapping[str, frozenset[str]]:
    """Pipeline → keys of its partitions (`zone`: the whole zone) with a hold; one listing."""
    partitions: dict[str, set[str]] = defaultdict(set)
    for name in clients.records.list_blob_names(name_starts_with=_FOLDER):
        _, pipeline, key = name.removesuffix(".json").split("/", 2)
        partitions[pipeline].add(key)
    return {pipeline: frozenset(keys) for pipeline, keys in partitions.items()}


def end_hold(clients: Clients, pipeline: str, partition: str | None, *, until: datetime) -> None:
    """Delete the record of a zone's hold, unless its batch was frozen at `until` or later.

    A batch that was started does not end its own hold, which a check may have begun meanwhile.
    """

    def is_newer(document: Any) -> bool:
        return HeldBatch.from_dict(document).dataset.frozen_at >= until

    record_store.delete(clients.records, hold_name(pipeline, partition), unless=is_newer)


@activity
def record_batch(clients: Clients, request: RecordBatch) -> Done:
    """Record the outcome of a batch, and end its zone's hold and troubles. Idempotent."""
    pipeline, dataset = request.result.pipeline, request.dataset
    rule = rule_of_batch(request.result.outcome)
    name = _name(pipeline, request.batch, dataset.frozen_at)
    record_store.replace(clients.records, name, request.to_dict())

    def follow(last: LastBatch | None) -> LastBatch | None:
        if last is not None and last.dataset.frozen_at > dataset.frozen_at:
            return None  # a caller's request recorded a newer batch
        return LastBatch(
            batch=request.batch,
            dataset=dataset,
            marker_at=request.marker_at,
            last_trained=dataset if rule.is_trained else last and last.last_trained,
            trained_before=() if last is None else _trained_before(last, request, rule),
            data_changed_in_a_row=0 if last is None else last.data_changed_in_a_row,
        )

    _update_last(clients, pipeline, dataset.partition, follow)
    until = dataset.frozen_at
    if not rule.is_held:
        end_hold(clients, pipeline, dataset.partition, until=until)
    is_of_landing = landing_of(name) == landing_instance(pipeline, dataset.partition)
    ends = {
        "any batch": True,
        "a batch of its landing": is_of_landing,
        "a batch that is not held": not rule.is_held,
    }
    ended = [kind for kind in get_args(LandingAlert) if ends[rule_of_trouble(kind).ended_by]]
    close_troubles(clients, pipeline, dataset.partition, until=until, kinds=ended)
    clients.telemetry.send(batch_spans(request))
    clients.telemetry.record(metrics.batch_measurements(request))
    return Done()


def _trained_before(last: LastBatch, request: RecordBatch, rule: BatchRule) -> tuple[Dataset, ...]:
    """What counts as trained before the batch: the version that it was compared with comes first.

    Between that and the last trained one are only batches whose training a check has ended.
    """
    trained = () if last.last_trained is None else (last.last_trained, *last.trained_before)
    if not rule.is_trained or (trained and trained[0].version == request.dataset.version):
        return last.trained_before
    if request.base is None:
        return ()
    return tuple(dropwhile(lambda it: it.version != request.base, trained))[:TRAINED_BEFORE]


@activity
def count_data_changed(clients: Clients, request: CountDataChanged) -> Done:
    """Record how many runs in a row have ended because their data was overwritten."""

    def count(last: LastBatch | None) -> LastBatch | None:
        assert last is not None, "a batch is recorded before it is trained on"
        return last.model_copy(update={"data_changed_in_a_row": request.in_a_row})

    _update_last(clients, request.pipeline, request.dataset.partition, count)
    return Done()


def last_batch(clients: Clients, pipeline: str, partition: str | None = None) -> LastBatch | None:
    """The last frozen batch of a zone or partition, if there is one."""
    document = record_store.read(clients.records, _last_name(pipeline, partition))
    return None if document is None else LastBatch.from_dict(document)


@dataclass(frozen=True)
class LastListing:
    """Facts about the last batch of a zone or partition that a listing returns."""

    listed_from: datetime
    marker_at: datetime | None


def list_last_batches(clients: Clients) -> Mapping[str, Mapping[str | None, LastListing]]:
    """Pipeline → partition → its last batch; None stands for the whole zone."""
    listings: dict[str, dict[str | None, LastListing]] = defaultdict(dict)
    for blob in clients.records.list_blobs(name_starts_with=f"{_LAST}/", include=["metadata"]):
        _, pipeline, key = blob.name.removesuffix(".json").split("/", 2)
        marker_at = blob.metadata.get("marker_at")
        listings[pipeline][None if key == _ZONE else key] = LastListing(
            listed_from=datetime.fromisoformat(blob.metadata["frozen_at"]),
            marker_at=datetime.fromisoformat(marker_at) if marker_at else None,
        )
    return listings


def batches_since(clients: Clients, pipeline: str, moment: datetime) -> Iterator[str]:
    """The record names of batches frozen at or after a moment, oldest first.

    Costs one listing of the days with batches, and one per day that the reader iterates over.
    """
    first = _day(pipeline, moment)
    for day in _days(clients, pipeline):
        if day >= first:
            names = sorted(clients.records.list_blob_names(name_starts_with=day))
            yield from (name for name in names if frozen_at(name) >= moment)


def has_batch_before(clients: Clients, pipeline: str, moment: datetime) -> bool:
    """Whether there is a record of a batch of an earlier day; one listing of the days."""
    return any(day < _day(pipeline, moment) for day in _days(clients, pipeline))


def newest_batches(clients: Clients, pipeline: str) -> Iterator[str]:
    """The record names of all batches, newest first; costs as much as `batches_since`."""
    for day in reversed(_days(clients, pipeline)):
        yield from sorted(clients.records.list_blob_names(name_starts_with=day), reverse=True)


def read_batch(clients: Clients, name: str) -> RecordBatch | None:
    """The record with a name; None if it was deleted since it was listed."""
    document = record_store.read(clients.records, name)
    return None if document is None else RecordBatch.from_dict(document)


def delete_record(clients: Clients, pipeline: str, batch: str, moment: datetime) -> None:
    """Delete the record of a batch that was frozen at `moment`, if it is there."""
    with contextlib.suppress(ResourceNotFoundError):
        clients.records.delete_blob(_name(pipeline, batch, moment))


def landing_of(name: str) -> str:
    """The landing of a named batch."""
    return name.rpartition("/")[2].partition("_")[2].rpartition("@")[0]


def frozen_at(name: str) -> datetime:
    """The time at which a named batch was frozen, rounded down to milliseconds."""
    return datetime.fromisoformat(name.rpartition("/")[2].partition("_")[0])


def _name(pipeline: str, batch: str, moment: datetime) -> str:
    """The name begins with the time in UTC, to sort by it; each day has a folder."""
    frozen = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return f"{_day(pipeline, moment)}{frozen}_{batch}.json"


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


@dataclass(frozen=True)
class BatchSearch:
    """Reads the records of batches that may have the blobs of one zone or partition."""

    clients: Clients
    pipeline: Pipeline
    partition: str | None
    """The blob's partition, if each partition is a batch."""

    def since(self, moment: datetime) -> Iterator[RecordBatch]:
        """The first batches that were frozen at or after a moment, the oldest first."""
        return self._read(batches_since(self.clients, self.pipeline.name, moment))

    def newest(self) -> Iterator[RecordBatch]:
        """The newest batches, the newest first."""
        return self._read(newest_batches(self.clients, self.pipeline.name))

    def _read(self, names: Iterator[str]) -> Iterator[RecordBatch]:
        """Read the first records of its own partition, then those of partitions that include it."""
        if self.partition is None:
            searched = islice(names, BATCHES_SEARCHED)
        else:
            listed = list(names)
            searched = chain(
                islice(filter(self._is_own, listed), BATCHES_SEARCHED),
                islice(filter(self._may_include, listed), BATCHES_SEARCHED),
            )
        for name in searched:
            batch = read_batch(self.clients, name)
            if batch is not None:
                yield batch

    def _is_own(self, name: str) -> bool:
        """Whether a record is of the partition's landing, or of a request, for the whole zone."""
        landing = landing_of(name)
        is_request = landing.startswith(REQUEST_PREFIX)
        return is_request or landing == landing_instance(self.pipeline.name, self.partition)

    def _may_include(self, name: str) -> bool:
        """Whether a record is of a later partition, whose dataset takes earlier ones, too."""
        chosen = self.pipeline.dataset
        if chosen.newest_partitions is None and chosen.last_days is None:
            return False
        other = partition_of_landing(self.pipeline.name, landing_of(name))
        return other is not None and self.partition is not None and other > self.partition
