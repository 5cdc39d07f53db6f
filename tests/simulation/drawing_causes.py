"""Draws causes that keep data from its run, and hours in which a service hangs beside people."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.simulation.story import (
    DAY,
    HOUR,
    CancelRun,
    Deploy,
    DriftSignal,
    Forget,
    Item,
    OpenPage,
    Outage,
    Refuse,
    RemovePipeline,
    RequestRun,
    TakeNodes,
)
from tests.simulation.weights import DRAWN

Moment = Callable[[], float]


def draw_causes(chance: random.Random, moment: Moment, last: float) -> Iterator[Item]:
    """Items of any week; `last` is the last second at which something may begin."""
    if chance.random() < DRAWN["refusals of the landing container"]:
        seconds = chance.choice([600.0, 3 * HOUR, 30 * HOUR])
        yield Refuse(at=moment(), seconds=seconds, status=chance.choice([403, 404]))
    if chance.random() < DRAWN["pipelines that are removed"]:
        yield RemovePipeline(at=moment(), seconds=chance.choice([600.0, 9 * HOUR, 30 * HOUR]))
    if chance.random() < DRAWN["drift signals"]:
        for _ in range(chance.choice([1, 2, 4])):
            at = chance.choice([moment(), chance.uniform(DAY, last)])
            yield DriftSignal(at=round(at, 3), number=chance.randint(1, 2))
    if chance.random() < DRAWN["requests for known data"]:
        at = chance.uniform(2 * DAY, last)
        yield from chance.choice([[CancelRun(at=moment())], [Deploy(at=at - 60.0, floor=0.7)], []])
        yield RequestRun(at=round(at, 3), key="request-again", seed=chance.choice([0, 0, 1]))
    if chance.random() < DRAWN["blobs that are forgotten"]:
        yield Forget(at=moment())
    if chance.random() < DRAWN["nodes that are taken"]:
        for _ in range(chance.choice([1, 1, 3])):
            seconds = chance.choice([60.0, 600.0, 2 * HOUR])
            yield TakeNodes(at=moment() + chance.choice([200.0, 400.0, 900.0]), seconds=seconds)
    if chance.random() < DRAWN["a bus that hangs beside people"]:
        at = moment() - 60.0
        yield Outage(
            service="service_bus",
            at=at,
            seconds=chance.choice([HOUR, 5 * HOUR, 9 * HOUR]),
            hangs=True,
            endless=True,
        )
        yield OpenPage(at=round(at + chance.uniform(0, HOUR), 3), seconds=900.0)
        yield CancelRun(at=round(at + chance.choice([120.0, 600.0, 2 * HOUR]), 3))
