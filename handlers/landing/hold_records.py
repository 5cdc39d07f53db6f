"""The record of a zone's hold: `held/<pipeline>/<partition, or zone>.json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from handlers.platform import record_store
from handlers.platform.clients import Clients
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.landing import HeldBatch
from orchestrations.landing.holding import HOLD_RULES

_FOLDER = "held/"
_ZONE = "zone"


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
    found: dict[str, set[str]] = defaultdict(set)
    for name in clients.records.list_blob_names(name_starts_with=_FOLDER):
        _, pipeline, key = name.removesuffix(".json").split("/", 2)
        found[pipeline].add(key)
    return {pipeline: frozenset(keys) for pipeline, keys in found.items()}


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
        if HOLD_RULES[held.reason].ended_by == "growth"
        and (held.since or held.dataset.frozen_at) <= latest
    }


def end_hold(clients: Clients, pipeline: str, partition: str | None, *, until: datetime) -> None:
    """Delete the record of a zone's hold, unless its batch was frozen after `until`."""

    def is_newer(document: Any) -> bool:
        return HeldBatch.from_dict(document).dataset.frozen_at > until

    record_store.delete(clients.records, hold_name(pipeline, partition), unless=is_newer)
