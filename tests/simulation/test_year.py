"""A simulated year of a small pipeline: nothing grows for ever.

Retention is set to its shortest. Every prefix of the containers, every instance and every queue is
looked at: what is older than its retention is in use, or is kept by design and small.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

import pytest

from handlers.operate import copy_retention
from handlers.operate.retention import DAYS_AFTER_COPIES
from handlers.operate.retention_kinds import KEPT, KINDS, RECORDS, Kind, Place
from handlers.platform.settings import KEEP_DAYS
from tests.fakes.storage_account import Blob
from tests.simulation import scheduler, world
from tests.simulation.fakes.training import RECORDS_CONTAINER, RESULTS_CONTAINER
from tests.simulation.story import (
    DAY,
    HOUR,
    CancelRun,
    Delete,
    Item,
    JobEnd,
    JobFate,
    Redrive,
    Release,
    RequestRun,
    Story,
    Terminate,
    Upload,
    Zone,
)
from tests.simulation.trial import logged
from tests.simulation.world import World

WEEKS = 52
YEAR_SECONDS = WEEKS * 7 * DAY
FILES = 12
SHORTEST = {name: fewest for name, (_, fewest) in KEEP_DAYS.items()}
# A pass begins every second day here, and removes what was old enough then.
SLACK = timedelta(days=5)
CONTAINERS: dict[Place, str] = {"records": RECORDS_CONTAINER, "results": RESULTS_CONTAINER}
# How the jobs of a story end, in turn. Most do not register a model.
ENDS: tuple[JobEnd, ...] = (
    "completes",
    "is worse",
    "is worse",
    "is worse",
    "fails",
    "rejects a file",
    "is worse",
    "is worse",
    "loses a node",
    "leaves no metrics",
)
# Kept by design: the largest number of bytes that a batch (or, where each day is a batch, a day)
# adds in a year's average. docs/operations.md gives the numbers.
BYTES_PER_BATCH = {
    "dataset-claims/": 4_000,
    "quarantine/": 500,
    "last-batches/": 2_000,
    "newest-events/": 500,
}
# Kept by design: one blob for each pipeline, zone, cause or deployment.
FEW_BLOBS = 4


def story(zone: Zone) -> Story:
    items: list[Item] = [JobFate(number=n + 1, end=ENDS[n % len(ENDS)]) for n in range(1_000)]
    for week in range(WEEKS):
        monday = week * 7 * DAY
        for number in range(2):
            at = monday + (2 * number + 0.1) * DAY
            day = f"day=2026-{1 + week // 5:02}-{1 + number:02}/" if zone == "daily" else ""
            path = f"{day}{(2 * week + number) % FILES}.png"
            items.append(Upload(at=at, path=path, content=f"{week} {number}"))
        if week % 4 == 0:
            items.append(RequestRun(at=monday + 5 * DAY, key=f"week {week}"))
        if week % 8 == 1:  # so many are gone that a person must look
            items += [
                Delete(at=monday + 6 * DAY, path=f"{number}.png") for number in range(FILES // 2)
            ]
        if week % 16 == 1:
            items.append(Release(at=monday + 6.5 * DAY))
        if week % 5 == 2:
            items.append(CancelRun(at=monday + 0.1 * DAY + 600))
            items.append(Terminate(at=monday + 2.1 * DAY + 600, orchestrator="retraining"))
        if week % 3 == 0:
            items.append(Redrive(at=monday + 6 * DAY + HOUR))
    return Story(seed=1, zone=zone, reconcile_every=2 * DAY, items=tuple(items))


@pytest.fixture
def short_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that runs for a year, with the shortest retention that the app accepts."""
    kept = {name: str(days) for name, days in SHORTEST.items()}
    monkeypatch.setattr(world, "SETTINGS", world.SETTINGS | kept)
    monkeypatch.setattr(world, "STORY_SECONDS", YEAR_SECONDS)
    monkeypatch.setattr(world, "PATIENCE_SECONDS", YEAR_SECONDS + 7 * DAY)
    monkeypatch.setattr(world, "CALL_LIMIT", 2_000_000)
    monkeypatch.setattr(scheduler, "ACTIONS_LIMIT", 20_000_000)
    # 8 KiB of bits are enough for a few copies.
    monkeypatch.setattr(copy_retention, "_DIGITS", 4)
    monkeypatch.setattr(copy_retention, "_BITMAP_BYTES", 16**4 // 8)
    monkeypatch.setattr(copy_retention, "SECTION_DIGITS", 1)


@dataclass(frozen=True)
class Year:
    """The world at the end of its year."""

    world: World

    def blobs(self, place: Place) -> list[Blob]:
        return list(self.world.account.container(CONTAINERS[place]).blobs.values())

    def documents(self, prefix: str) -> Iterator[Any]:
        for blob in self.world.account.container(RECORDS_CONTAINER).below(prefix):
            yield json.loads(blob.content)

    @functools.cached_property
    def needed(self) -> set[str]:
        """Runs of models; dataset versions of models, batches and recent runs."""
        found: set[str] = set()
        for model in self.world.workspace.models.values():
            found |= {model.tags["landfall.run"], model.tags["landfall.dataset-version"]}
        for last in self.documents("last-batches/"):
            trained = last.get("last_trained")
            found |= {each["version"] for each in (last["dataset"], trained) if each}
        found |= {each["dataset"]["version"] for each in self.documents("batches/")}
        entries = self.world.account.container(RECORDS_CONTAINER).below("run-index/all/")
        return found | {json.loads(e.metadata["summary"])["dataset_version"] for e in entries}

    def too_old(self) -> Iterator[str]:
        """Blobs whose retention is over, and that nothing needs."""
        for place in get_args(Place):
            for blob in self.blobs(place):
                kind = kind_of(place, blob.name)
                if kind is None or blob.last_modified > self.world.scheduler.now - kept(kind):
                    continue
                if not any(word in blob.name for word in self.needed):
                    yield f"{place}: {blob.name} of {blob.last_modified:%Y-%m-%d}"


def kind_of(place: Place, name: str) -> Kind | None:
    for kind in KINDS:
        is_of_kind = kind.place == place and name.startswith(kind.prefix)
        if is_of_kind and (kind.last_part is None or f"/{kind.last_part}/" in name):
            return kind
    return None


def kept(kind: Kind) -> timedelta:
    days = SHORTEST[kind.setting]
    if kind.setting == RECORDS:
        days = max(days, SHORTEST["KEEP_COPIES_DAYS"] + DAYS_AFTER_COPIES)
    return timedelta(days=days) + SLACK


@pytest.mark.usefixtures("short_retention")
@pytest.mark.parametrize("zone", ["copied", "daily"])
def test_after_a_year_nothing_is_older_than_its_retention_but_what_is_in_use(zone: Zone) -> None:
    ran = World(story(zone))
    with logged(ran.host.note):
        ran.run()
    year = Year(ran)
    assert ran.is_idle, ran.what_goes_on()
    assert not ran.host.mistakes
    batches = len(list(year.documents("dataset-claims/")))
    assert batches > WEEKS / 2, "too little happens"

    # Blobs.
    names = [blob.name for blob in year.blobs("records")]
    known = (*(kind.prefix for kind in KINDS), *KEPT)
    assert [name for name in names if not name.startswith(known)] == [], "kinds without a retention"
    assert list(year.too_old()) == []
    bytes_of = Counter[str]()
    blobs_of = Counter[str]()
    for blob in year.blobs("records"):
        folder = blob.name.partition("/")[0] + "/"
        bytes_of[folder] += len(blob.content) + sum(map(len, blob.metadata.values()))
        blobs_of[folder] += 1
    for folder in set(KEPT) & set(blobs_of) - {"frozen/"}:
        if folder in BYTES_PER_BATCH:
            assert bytes_of[folder] <= BYTES_PER_BATCH[folder] * batches, folder
        else:
            assert blobs_of[folder] <= FEW_BLOBS, folder
    assert blobs_of["outbox/"] == 0

    # Instances.
    oldest = ran.scheduler.now - timedelta(days=SHORTEST["KEEP_INSTANCES_DAYS"]) - SLACK
    assert [each.id for each in ran.hub.instances.values() if each.created_at < oldest] == []

    # Messages: only people empty the dead letters of `rejected-runs`.
    left = {name: len(queue.messages) for name, queue in ran.broker.queues.items()}
    assert {name for name, number in left.items() if number} <= {"rejected-runs/$deadletterqueue"}
