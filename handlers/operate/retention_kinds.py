"""The table of everything that grows: where it is, how long it is kept, and what protects it.

A kind has a prefix and a setting with the number of days. Its blobs are removed together with the
others of their subject (a run, a dataset version), when none of them was written for so long and
the subject is not in use. docs/operations.md has the same table for people.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal

from handlers.landing.batch_records import last_batch, list_last_batches, newest_batches, read_batch
from handlers.landing.dataset_claims import list_versions
from handlers.platform import tags
from handlers.platform.clients import Clients
from handlers.platform.run_index import UNFINISHED_STATES, list_runs, list_unfinished_runs
from handlers.platform.tags import all_versions, tags_of
from handlers.rollout.endpoint_claims import claimants
from handlers.training.champions import active_versions
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.names import round_of, run_of_job, version_of

Place = Literal["records", "results"]
"""The records container, or the container of the workspace's default datastore."""
EVENTS, RECORDS, INSTANCES, CHECKPOINTS, COPIES = (
    "KEEP_EVENTS_DAYS",
    "KEEP_RECORDS_DAYS",
    "KEEP_INSTANCES_DAYS",
    "KEEP_CHECKPOINTS_DAYS",
    "KEEP_COPIES_DAYS",
)
KEPT: tuple[str, ...] = (
    "alarms/",
    "capacity/",
    "configurations/",
    "copy-retention/",
    "dataset-claims/",
    "forgotten/",
    "frozen/",
    "held/",
    "last-batches/",
    "newest-events/",
    "outbox/",
    "outbox-alerts/",
    "paused/",
    "quarantine/",
    "reconciliation/",
    "rejected-events/",
    "retention/",
    "run-changes/",
    "troubles/",
    "webhooks/disabled/",
)
"""Prefixes of the records container that this table removes nothing of: see docs/operations.md.

Most hold one blob for each pipeline, zone or cause. `copy_retention` removes from `frozen/`, and
`message_outbox` from `outbox/`.
"""
# Kept at any age, since a freeze relies on the copies of the last batch.
NEWEST_BATCHES = 10
RUNS_PER_PAGE = 1000


@dataclass(frozen=True, kw_only=True)
class InUse:
    """What is never removed, at any age. Pipelines are those of the deployed app."""

    pipelines: frozenset[str]
    runs: frozenset[str]
    """Runs that have not ended, and those that registered a version of a model."""
    versions: frozenset[tuple[str, str]]
    """Pipeline and dataset version of recent batches and runs, of the last batch of each zone, and
    of the model versions that are not archived."""
    unfinished_versions: frozenset[tuple[str, str]]
    """Pipeline and dataset version of runs that have not ended."""
    last_versions: frozenset[tuple[str, str]]
    """Pipeline and dataset version of the last batch of each zone or partition."""
    rollouts: frozenset[str]
    """Rollouts that hold an endpoint, or were the last to hold it."""


Protects = Callable[[InUse, Sequence[str]], bool]
"""Whether a subject, given by the parts of its name, is in use."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of blobs that are removed some time after they were last written."""

    prefix: str
    setting: str
    depth: int | None = None
    """The number of parts of a name that name its subject; None: each blob is its own subject."""
    place: Place = "records"
    last_part: str | None = None
    """If set, only subjects whose last part is this one belong to the kind."""
    protects: Protects = lambda _, __: False

    def subject(self, name: str) -> str:
        """The subject of a blob."""
        return name if self.depth is None else "/".join(name.split("/")[: self.depth])

    def removes(self, subject: str, in_use: InUse) -> bool:
        """Whether a subject that is old enough may be removed."""
        parts = subject.split("/")
        if self.last_part is not None and parts[-1] != self.last_part:
            return False
        return not self.protects(in_use, parts)


def _run(in_use: InUse, run: str) -> bool:
    # A run's id is <pipeline>-<version>-<attempt>. Models of pipelines that are not deployed are
    # unknown here, so all of their runs are kept.
    if run in in_use.runs or run.rsplit("-", 2)[0] not in in_use.pipelines:
        return True
    # A reproduction stays with its model: its number, used again, would adopt the old job.
    training = run.rpartition("-")[0]
    original = round_of(training)
    return original != training and any(it.rpartition("-")[0] == original for it in in_use.runs)


def _version(in_use: InUse, pipeline: str, version: str) -> bool:
    return (pipeline, version) in in_use.versions or pipeline not in in_use.pipelines


def _index_entry(in_use: InUse, parts: Sequence[str]) -> bool:
    _, group, _, key = parts
    return group == "unfinished" or _run(in_use, key.partition("_")[2])


def _checkpoints(in_use: InUse, parts: Sequence[str]) -> bool:
    _, pipeline, version, _ = parts
    known = (pipeline, version_of(version))  # the folder is that of a round of training
    return known in in_use.unfinished_versions or pipeline not in in_use.pipelines


def _released(in_use: InUse, parts: Sequence[str]) -> bool:
    _, pipeline, file = parts
    version = file.removesuffix(".json")
    return (pipeline, version) in in_use.last_versions or pipeline not in in_use.pipelines


KINDS: tuple[Kind, ...] = (
    Kind(prefix="events/", setting=EVENTS),
    Kind(prefix="freezing/", setting=INSTANCES, depth=3),
    Kind(prefix="requests/", setting=INSTANCES),
    Kind(prefix="actions/", setting=RECORDS),
    # Questions are open for a month at most: `approve.hours`.
    Kind(prefix="approvals/", setting=RECORDS),
    Kind(prefix="promotions/", setting=RECORDS, depth=2),
    Kind(prefix="batches/", setting=RECORDS),
    Kind(prefix="claim-index/", setting=RECORDS),
    Kind(prefix="discarded/", setting=RECORDS),
    Kind(prefix="released/", setting=RECORDS, protects=_released),
    Kind(
        prefix="rollout-index/",
        setting=RECORDS,
        protects=lambda use, parts: parts[1].partition("_")[2] in use.rollouts,
    ),
    Kind(
        prefix="rollouts/",
        setting=RECORDS,
        depth=2,
        protects=lambda use, parts: parts[1] in {"claims", *use.rollouts},
    ),
    Kind(prefix="run-index/", setting=RECORDS, protects=_index_entry),
    Kind(prefix="runs/", setting=RECORDS, depth=2, protects=lambda use, parts: _run(use, parts[1])),
    Kind(
        prefix="manifests/",
        setting=RECORDS,
        depth=3,
        protects=lambda use, parts: _version(use, parts[1], parts[2]),
    ),
    Kind(
        prefix="landfall/",
        setting=CHECKPOINTS,
        depth=4,
        place="results",
        last_part="checkpoints",
        protects=_checkpoints,
    ),
    Kind(
        prefix="landfall/",
        setting=RECORDS,
        depth=4,
        place="results",
        last_part="results",
        protects=lambda use, parts: _run(use, run_of_job(parts[2])),
    ),
)
"""In the order of removal: records that name a manifest are removed before it."""


def read_uses(clients: Clients, pipelines: Mapping[str, Pipeline], since: datetime) -> InUse:
    """What is in use; batches and runs of the time since a moment are recent."""
    unfinished = list_unfinished_runs(clients.records)
    runs = {run["id"] for records in unfinished.values() for run in records}
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
            (name, run["dataset_version"])
            for name, records in unfinished.items()
            for run in records
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
    versions: set[str] = set()
    for partition in list_last_batches(clients).get(pipeline, {}):
        last = last_batch(clients, pipeline, partition)
        if last is not None:
            versions |= {
                each.version
                for each in (last.dataset, last.last_trained, *last.trained_before)
                if each
            }
    return versions


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
