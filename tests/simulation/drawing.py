"""Draws a story from a seed. The numbers are chosen so that faults meet each other often.

Here is what any week has; the rest is drawn as its feature says (`features`).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import get_args

from orchestrations.platform.activities import ACTIVITIES
from tests.simulation.feature import LAST_UPLOAD, Week
from tests.simulation.features import CHANGES, FEATURES
from tests.simulation.scheduler import START
from tests.simulation.story import (
    DAY,
    HOUR,
    CancelRun,
    ChangeCluster,
    Delete,
    Deploy,
    Item,
    JobEnd,
    JobFate,
    Mark,
    QuestionEnd,
    QuestionFate,
    Redrive,
    RedriveChange,
    RedriveChanged,
    Release,
    ReleaseAfter,
    RequestRun,
    RivalUpload,
    Shortage,
    Story,
    Terminate,
    TerminateAfter,
    Upload,
    Zone,
)

ZONES: Mapping[Zone, float] = {
    "quiet": 5,
    "marked": 3,
    "daily": 2,
    "copied": 2,
    "queued": 2,
    "online": 3,
    "batch": 1,
}
"""Share of the weeks with each pipeline."""


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(seed)
    zone: Zone = chance.choices(list(ZONES), weights=list(ZONES.values()))[0]
    items = list(_uploads(chance, zone))
    moments = [item.at for item in items if isinstance(item, Upload)]
    if zone == "queued":
        items += _rival_uploads(chance, moments)
    week = Week(seed, zone, chance, moments, changes=len(items))
    items += [*_people(week), *_jobs(chance), *_surroundings(week), *_answers(chance)]
    for feature in FEATURES:
        for name, kind in feature.drawn.items():
            own = week.chance_of(name, apart=kind.apart)
            if zone in kind.zones and (kind.weight is None or own.random() < kind.weight):
                items += kind.items(own, week)
    return Story(
        seed=seed,
        zone=zone,
        reconcile_every=chance.choice([4 * HOUR, 8 * HOUR]),
        items=tuple(items),
    )


def _uploads(chance: random.Random, zone: Zone) -> Iterator[Item]:
    names: list[str] = []
    contents: dict[str, str] = {}
    at = chance.uniform(0, DAY / 2)
    for burst in range(chance.randint(1, 5)):
        day = (START + timedelta(seconds=at)).date()
        if chance.random() < 0.15:
            day -= timedelta(days=1)  # late data of yesterday
        for number in range(chance.randint(1, 6)):
            if names and chance.random() < 0.3:
                path = chance.choice(names)
            else:
                folder = f"day={day}/" if zone in ("daily", "queued") else ""
                path = f"{folder}{burst}-{number}.png"
            content = f"content {burst} {number}"
            if path in contents and chance.random() < 0.4:
                content = contents[path]  # the same once more
            yield Upload(at=round(at, 3), path=path, content=content)
            names.append(path)
            contents[path] = content
            at += chance.choice([0.01, 1.0, 20.0, chance.uniform(1, 500)])
        if zone == "marked" and chance.random() < 0.85:
            # Sometimes before its last file, or long after it.
            yield Mark(at=round(at + chance.choice([-10.0, 0.5, 30.0, 600.0, 3 * HOUR]), 3))
        for _ in range(chance.choices([0, 1, 3], weights=(7, 2, 1))[0]):
            later = at + chance.uniform(0, 8 * HOUR)
            yield Delete(at=round(later, 3), path=chance.choice(names))
        at += chance.choice([400.0, 1_000.0, 2 * HOUR, chance.uniform(0, 2 * DAY), 2 * DAY])
        if at > LAST_UPLOAD:
            return


def _rival_uploads(chance: random.Random, uploads: list[float]) -> Iterator[Item]:
    for number in range(chance.randint(1, 6)):
        at = chance.choice(uploads) + chance.choice([0.0, 100.0, 400.0, 1_000.0, 2 * HOUR])
        content = f"content of the rival {number}"
        yield RivalUpload(at=round(at, 3), path=f"{number}.png", content=content)


def _people(week: Week) -> Iterator[Item]:
    chance = week.chance
    moment = functools.partial(week.moment, chance)
    if chance.random() < 0.3:
        key = f"request-{chance.randint(1, 2)}"
        for _ in range(chance.randint(1, 3)):
            yield RequestRun(at=moment(), key=key)
    for _ in range(chance.choices([0, 1, 4], weights=(6, 2, 2))[0]):
        yield CancelRun(at=moment())
    for _ in range(chance.choices([0, 1, 4], weights=(8, 1, 1))[0]):
        yield Terminate(
            at=moment(), orchestrator=chance.choice(["retraining", "landing", "rollout"])
        )
    if chance.random() < 0.3:
        yield TerminateAfter(
            activity=chance.choice(list(ACTIVITIES)), number=chance.choice([1, 1, 2, 3, 5])
        )
    for _ in range(chance.choices([0, 1, 2], weights=(6, 3, 1))[0]):
        yield Redrive(at=moment())
    for _ in range(chance.choices([0, 1, 2], weights=(7, 2, 1))[0]):
        yield Release(at=moment())
    if chance.random() < 0.3:
        # A landing ends some two seconds after its batch is held.
        delay = chance.choice([0.1, 1.0, 1.9, 2.0, 2.1, 10.0, 400.0])
        yield ReleaseAfter(number=chance.choice([1, 1, 2, 3]), delay=delay)
    for _ in range(chance.choices([0, 1, 3], weights=(6, 2, 2))[0]):
        # A run that gave up is dead-lettered some hours after its upload, and lies there.
        later = [moment() + chance.choice([HOUR, 4 * HOUR]), chance.uniform(4 * DAY, LAST_UPLOAD)]
        at = round(chance.choice(later), 3)
        yield RedriveChanged(at=at, change=chance.choice(get_args(RedriveChange)))


def _surroundings(week: Week) -> Iterator[Item]:
    chance = week.chance
    moment = functools.partial(week.moment, chance)
    shortages = [900.0, 3 * HOUR] if week.zone == "queued" else [900.0, 3 * HOUR, 2 * DAY]
    for _ in range(chance.choices([0, 1, 3], weights=(8, 2, 1))[0]):
        yield Deploy(at=moment(), floor=chance.choice([0.7, 0.9, 0.99]), changes=_changes(week))
    for _ in range(chance.choices([0, 1, 2], weights=(8, 2, 1))[0]):
        clusters = [("spot",), ("dedicated",), ("spot", "dedicated")]
        yield Shortage(
            at=max(moment() - 600.0, 0.0),
            seconds=chance.choice(shortages),
            clusters=chance.choice(clusters),
        )
    for _ in range(chance.choices([0, 1, 2], weights=(8, 2, 1))[0]):
        yield ChangeCluster(
            at=max(moment() - 60.0, 0.0),
            seconds=chance.choice([120.0, 1_500.0, 3 * HOUR]),
            cluster=chance.choice(["spot", "dedicated"]),
        )


def _changes(week: Week) -> tuple[str, ...]:
    return tuple(
        name
        for name, change in CHANGES.items()
        if week.chance_of(name, apart=change.apart).random() < change.weight
    )


def _jobs(chance: random.Random) -> Iterator[Item]:
    share = chance.choice([0.0, 0.2, 0.7])
    for number in range(1, 11):
        if chance.random() < share:
            yield JobFate(number=number, end=chance.choice(get_args(JobEnd)))


def _answers(chance: random.Random) -> Iterator[Item]:
    for number in range(1, 9):
        if chance.random() < 0.5:
            delay = chance.choice([0.0, 60.0, HOUR, 1.99 * HOUR, 5 * HOUR])
            end = chance.choice(get_args(QuestionEnd))
            yield QuestionFate(number=number, end=end, delay=delay)
