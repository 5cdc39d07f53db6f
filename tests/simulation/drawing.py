"""Draws a story from a seed. The numbers are chosen so that faults meet each other often."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

from orchestrations.platform.activities import ACTIVITIES
from tests.simulation.drawing_causes import draw_causes
from tests.simulation.drawing_rollouts import draw_rollouts
from tests.simulation.rollout_items import OverwriteModel, PromoteToProduction
from tests.simulation.scheduler import START
from tests.simulation.story import (
    DAY,
    HOUR,
    CallEnd,
    CallFault,
    CancelPromotion,
    CancelRun,
    Change,
    ChangeCluster,
    ConfigurationChange,
    Crash,
    DelayEvent,
    DelayJobEvent,
    Delete,
    Deploy,
    EveryActivityTwice,
    Item,
    JobEnd,
    JobFate,
    LoseEvent,
    LoseJobEvent,
    Mark,
    Outage,
    OutageAfter,
    QuestionEnd,
    QuestionFate,
    Redrive,
    RedriveChanged,
    Release,
    ReleaseAfter,
    RepeatEvent,
    Reproduce,
    RequestRun,
    RivalUpload,
    SecondCopy,
    Service,
    Shortage,
    Story,
    StrayJobEvent,
    StrayKind,
    Terminate,
    TerminateAfter,
    Upload,
    Zone,
)
from tests.simulation.weights import CHANGED, DRAWN, ZONES

# How many calls of each service a week has, about.
CALLS: dict[Service, int] = {
    "blobs": 600,
    "service_bus": 150,
    "event_grid": 12,
    "azure_ml": 120,
    "webhooks": 12,
    "task_hub": 120,
}
LAST_UPLOAD = 6 * DAY


def draw(seed: int) -> Story:
    """The story of a seed."""
    chance = random.Random(seed)
    zone: Zone = chance.choices(list(ZONES), weights=list(ZONES.values()))[0]
    acts = list(_uploads(chance, zone))
    moments = [item.at for item in acts if isinstance(item, Upload)]
    if zone == "queued":
        acts += _rival_uploads(chance, moments)
    shortages = [900.0, 3 * HOUR] if zone == "queued" else [900.0, 3 * HOUR, 2 * DAY]
    items = [
        *acts,
        *_people(chance, moments),
        *_jobs(chance),
        *_surroundings(chance, moments, shortages),
    ]
    items += _answers(chance)
    items += draw_causes(chance, functools.partial(_moment, chance, moments), LAST_UPLOAD)
    if zone in ("online", "batch"):
        items += draw_rollouts(chance, zone, moments)
    # A third of all weeks are calm, and the others are wild in different ways.
    if chance.random() < 0.67:
        items += _event_faults(chance, changes=len(acts))
    if chance.random() < 0.67:
        items += _call_faults(chance)
    if chance.random() < 0.67:
        items += _host_faults(chance)
    items += _reproductions(random.Random(f"reproductions {seed}"))
    items += _promotions(chance, moments)
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


def _moment(chance: random.Random, uploads: list[float]) -> float:
    if chance.random() < 0.3:
        return round(chance.uniform(0, LAST_UPLOAD), 3)
    # While something comes of an upload: it settles for five minutes.
    return round(chance.choice(uploads) + 300.0 + chance.choice([2.0, 10.0, 100.0, 900.0]), 3)


def _people(chance: random.Random, uploads: list[float]) -> Iterator[Item]:
    moment = functools.partial(_moment, chance, uploads)
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
        yield RedriveChanged(at=at, change=chance.choice(get_args(Change)))


def _surroundings(
    chance: random.Random, uploads: list[float], shortages: list[float]
) -> Iterator[Item]:
    moment = functools.partial(_moment, chance, uploads)
    for _ in range(chance.choices([0, 1, 3], weights=(8, 2, 1))[0]):
        yield Deploy(at=moment(), floor=chance.choice([0.7, 0.9, 0.99]), changes=_changes(chance))
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


def _changes(chance: random.Random) -> tuple[ConfigurationChange, ...]:
    return tuple(
        change
        for change in get_args(ConfigurationChange)
        if chance.random() < CHANGED.get(change, 0.0)
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


def _reproductions(chance: random.Random) -> Iterator[Item]:
    """By a chance of their own, so that the rest of a known story stays."""
    if chance.random() < DRAWN["models that are reproduced"]:
        for _ in range(chance.choice([1, 2])):
            at = round(chance.uniform(DAY, LAST_UPLOAD), 3)
            yield from [Reproduce(at=at)] * chance.choice([1, 2])


def _promotions(chance: random.Random, uploads: list[float]) -> Iterator[Item]:
    """At last, so that the weeks of known seeds have what they had."""
    if chance.random() >= DRAWN["promotions to production"]:
        return
    for _ in range(chance.choice([1, 1, 3])):
        at = _moment(chance, uploads) + chance.choice([900.0, 2 * HOUR, DAY])
        once = chance.random() < 0.3
        yield PromoteToProduction(at=at, once=once)
        if once:
            yield Outage(service="task_hub", at=at - 1.0, seconds=chance.choice([2.0, 60.0]))
        if chance.random() < 0.2:
            yield OverwriteModel(at=at + chance.choice([-60.0, 1.0, 60.0, 610.0]))
        if chance.random() < 0.2:
            delay = chance.choice([2.0, 5.0, 60.0, 612.0, HOUR])
            yield Terminate(at=at + delay, orchestrator="promotion")
        if chance.random() < 0.2:
            yield CancelPromotion(at=at + chance.choice([0.0, 2.0, 60.0, 612.0, HOUR]))


def _event_faults(chance: random.Random, *, changes: int) -> Iterator[Item]:
    for _ in range(chance.randint(0, 4)):
        number = chance.randint(1, changes)
        kind = chance.choice([LoseEvent, RepeatEvent, DelayEvent, LoseJobEvent])
        if kind is LoseEvent:
            yield LoseEvent(number=number)
        elif kind is RepeatEvent:
            yield RepeatEvent(number=number, delay=chance.choice([0.2, 60.0, HOUR, DAY]))
        elif kind is DelayEvent:
            yield DelayEvent(number=number, delay=chance.choice([5.0, 400.0, HOUR, DAY]))
        else:
            yield LoseJobEvent(number=chance.randint(1, 12))
    for _ in range(chance.choices([0, 1, 3], weights=(6, 3, 1))[0]):
        delay = chance.choice([5.0, 400.0, HOUR, DAY])
        yield DelayJobEvent(number=chance.randint(1, 12), delay=delay)
    for _ in range(chance.choices([0, 1, 4], weights=(7, 2, 1))[0]):
        at = round(chance.uniform(0, LAST_UPLOAD), 3)
        yield StrayJobEvent(at=at, kind=chance.choice(get_args(StrayKind)))


def _call_faults(chance: random.Random) -> Iterator[Item]:
    for _ in range(chance.randint(0, 10)):
        service = chance.choice(list(CALLS))
        yield CallFault(
            service=service,
            number=chance.randint(1, CALLS[service]),
            end=chance.choice(get_args(CallEnd)),
        )
    if chance.random() < 0.3:
        yield OutageAfter(
            activity=chance.choice(list(ACTIVITIES)),
            number=chance.choice([1, 1, 2, 3, 5]),
            service=chance.choice(list(CALLS)),
            seconds=chance.choice([60.0, 600.0, 2 * HOUR]),
            hangs=chance.random() < 0.4,
        )
    for _ in range(chance.choices([0, 1, 3], weights=(4, 4, 2))[0]):
        yield Outage(
            service=chance.choice(list(CALLS)),
            at=round(chance.uniform(0, LAST_UPLOAD), 3),
            seconds=chance.choice([60.0, 600.0, 2 * HOUR, 8 * HOUR]),
            hangs=chance.random() < 0.4,
        )


def _host_faults(chance: random.Random) -> Iterator[Item]:
    for _ in range(chance.randint(0, 8)):
        yield Crash(
            call=chance.randint(0, 500),
            after=chance.random() < 0.6,
            down=chance.choice([0.5, 30.0, 700.0, 3 * HOUR]),
        )
    if chance.random() < 0.15:
        yield EveryActivityTwice()
    for _ in range(chance.randint(0, 6)):
        yield SecondCopy(
            number=chance.randint(1, 120), delay=chance.choice([0.0, 0.02, 1.0, 40.0, 400.0])
        )
