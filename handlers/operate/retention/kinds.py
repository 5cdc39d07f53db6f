"""The table of everything that grows: where it is, how long it is kept, and what protects it. Pure.

A kind has a prefix and a setting with the number of days. Its blobs are removed together with the
others of their subject (a run, a dataset version), when none of them was written for so long and
the subject is not in use. docs/operations.md has the same table for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrations.names import version_of

Place = Literal["records", "results"]
"""The records container, or the container of the workspace's default datastore."""


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
    return run in in_use.runs or run.rsplit("-", 2)[0] not in in_use.pipelines


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


EVENTS, RECORDS, INSTANCES, CHECKPOINTS, COPIES = (
    "KEEP_EVENTS_DAYS",
    "KEEP_RECORDS_DAYS",
    "KEEP_INSTANCES_DAYS",
    "KEEP_CHECKPOINTS_DAYS",
    "KEEP_COPIES_DAYS",
)

KINDS: tuple[Kind, ...] = (
    Kind(prefix="events/", setting=EVENTS),
    Kind(prefix="freezing/", setting=INSTANCES, depth=3),
    Kind(prefix="requests/", setting=INSTANCES),
    Kind(prefix="actions/", setting=RECORDS),
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
        protects=lambda use, parts: _run(use, parts[2]),
    ),
)
"""In the order of removal: what names a manifest goes before the manifest."""

KEPT: tuple[str, ...] = (
    "alarms/",
    "capacity/",
    "configurations/",
    "copy-retention/",
    "dataset-claims/",
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
