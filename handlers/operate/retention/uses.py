"""Reads what is in use, and so never removed: see `handlers.operate.retention.kinds.InUse`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from handlers.landing.batch_records import (
    last_batch,
    list_last_batches,
    newest_batches,
    read_batch,
)
from handlers.landing.dataset_claims import list_versions
from handlers.operate.retention.kinds import InUse
from handlers.platform.azure_ml import tags
from handlers.platform.azure_ml.models import all_versions
from handlers.platform.azure_ml.tags import tags_of
from handlers.platform.clients import Clients
from handlers.platform.records.run_index import UNFINISHED_STATES, list_runs, list_unfinished_runs
from handlers.rollout.endpoint_claims import claimants
from handlers.training.champions import active_versions
from orchestrations.configuration.pipeline import Pipeline

# Kept at any age, since a freeze relies on the copies of the last batch.
NEWEST_BATCHES = 10
RUNS_PER_PAGE = 1000


def read_uses(clients: Clients, pipelines: Mapping[str, Pipeline], since: datetime) -> InUse:
    """What is in use; batches and runs of the time since a moment are recent."""
    unfinished = list_unfinished_runs(clients.records)
    runs = {run["id"] for found in unfinished.values() for run in found}
    versions: set[tuple[str, str]] = set()
    last_versions: set[tuple[str, str]] = set()
    for name, pipeline in pipelines.items():
        last = last_versions_of(clients, name)
        last_versions |= {(name, each) for each in last}
        versions |= {(name, each) for each in last | _other_versions(clients, pipeline, since)}
        models = all_versions(clients, pipeline.model.name)
        runs |= {tags_of(model)[tags.RUN] for model in models if tags.RUN in tags_of(model)}
    return InUse(
        pipelines=frozenset(pipelines),
        runs=frozenset(runs),
        versions=frozenset(versions),
        unfinished_versions=frozenset(
            (name, run["dataset_version"]) for name, found in unfinished.items() for run in found
        ),
        last_versions=frozenset(last_versions),
        rollouts=frozenset(claimants(clients)),
    )


def kept_versions(clients: Clients, pipeline: Pipeline, since: datetime) -> set[str]:
    """The dataset versions of a pipeline that are in use.

    They are those of batches and runs since a moment, of the last batches, of runs that have not
    ended, and of the model's versions that are not archived, the champion among them.
    """
    last = last_versions_of(clients, pipeline.name)
    return last | _other_versions(clients, pipeline, since)


def last_versions_of(clients: Clients, pipeline: str) -> set[str]:
    """The versions of the last batch of each zone or partition, and of the last trained one."""
    found: set[str] = set()
    for partition in list_last_batches(clients).get(pipeline, {}):
        last = last_batch(clients, pipeline, partition)
        if last is not None:
            found |= {each.version for each in (last.dataset, last.last_trained) if each}
    return found


def _other_versions(clients: Clients, pipeline: Pipeline, since: datetime) -> set[str]:
    name = pipeline.name
    kept = set(list_versions(clients, name, frozen_after=since))
    for record in islice(newest_batches(clients, name), NEWEST_BATCHES):
        batch = read_batch(clients, record)
        kept |= set() if batch is None else {batch.dataset.version}
    kept |= {run["dataset_version"] for run in _runs(clients, name, created_from=since)}
    kept |= {run["dataset_version"] for run in _runs(clients, name, states=UNFINISHED_STATES)}
    return kept | set(_trained_on(active_versions(clients, pipeline.model.name)))


def _trained_on(models: Iterable[Any]) -> Iterator[str]:
    for model in models:
        version = tags_of(model).get(tags.DATASET_VERSION)
        if version is not None:
            yield version


def _runs(clients: Clients, pipeline: str, **which: Any) -> Iterator[dict[str, Any]]:
    after: str | None = None
    while True:
        page = list_runs(
            clients.records, pipeline=pipeline, after=after, limit=RUNS_PER_PAGE, **which
        )
        yield from page.runs
        after = page.following
        if after is None:
            return
