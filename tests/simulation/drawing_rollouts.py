"""Draws what happens to rollouts in a week whose pipeline has an endpoint."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import get_args

from tests.simulation.rollout_items import (
    DeleteEndpoint,
    ModelEnd,
    ModelFate,
    NoRequests,
    PromoteModel,
    PromoteRollout,
    RollBackModel,
    RollBackRollout,
    StartRollout,
)
from tests.simulation.story import (
    HOUR,
    Act,
    CallEnd,
    CallFault,
    Item,
    Outage,
    Service,
    Zone,
)
from tests.simulation.weights import DRAWN

# A model is registered about half an hour after its upload; its rollout takes two hours more.
Moment = Callable[[], float]
Draw = Callable[[random.Random, Moment], Iterator[Item]]
MOMENTS = (1_200.0, 1_800.0, 2_700.0, HOUR, 1.5 * HOUR, 2 * HOUR, 4 * HOUR)
SERVICES: tuple[Service, ...] = ("azure_ml", "blobs", "task_hub", "service_bus")


def draw_rollouts(chance: random.Random, zone: Zone, uploads: list[float]) -> Iterator[Item]:
    """Items beside those that every week has."""

    def moment() -> float:
        return round(chance.choice(uploads) + chance.choice(MOMENTS) + chance.uniform(0, 300), 3)

    for kind, draw in _KINDS.items():
        if chance.random() < DRAWN[kind]:
            yield from (each for each in draw(chance, moment) if _fits(each, zone))
    # While a rollout goes on, and not at any moment of the week.
    for _ in range(chance.choice([0, 0, 1, 2])):
        yield _outage(chance, chance.choice(SERVICES), moment())


def _fits(item: Item, zone: Zone) -> bool:
    """Batch deployments have no guard on latency."""
    return zone == "online" or not (isinstance(item, ModelFate) and item.end == "is slow")


def _models(chance: random.Random, _: Moment) -> Iterator[Item]:
    for number in range(1, 6):
        if chance.random() < 0.5:
            yield ModelFate(number=number, end=chance.choice(get_args(ModelEnd)))


def _no_requests(chance: random.Random, moment: Moment) -> Iterator[Item]:
    yield NoRequests(at=moment(), seconds=chance.choice([600.0, 2 * HOUR, 12 * HOUR]))


def _decisions(chance: random.Random, moment: Moment) -> Iterator[Item]:
    for _ in range(chance.choice([1, 1, 3])):
        yield chance.choice([PromoteRollout, RollBackRollout])(at=moment())


def _once(kind: type[Act]) -> Draw:
    return lambda _, moment: iter([kind(at=moment())])


def _failing(service: Service) -> Draw:
    return lambda chance, moment: _faults(chance, service, moment())


_KINDS: dict[str, Draw] = {
    "models that break": _models,
    "hours without requests": _no_requests,
    "outages of metrics": _failing("metrics"),
    "outages of scoring": _failing("scoring"),
    "people decide on rollouts": _decisions,
    "people start rollouts": _once(StartRollout),
    "people promote models": _once(PromoteModel),
    "people roll models back": _once(RollBackModel),
    "people delete the endpoint": _once(DeleteEndpoint),
}


def _faults(chance: random.Random, service: Service, at: float) -> Iterator[Item]:
    for _ in range(chance.randint(0, 3)):
        end = chance.choice(get_args(CallEnd))
        yield CallFault(service=service, number=chance.randint(1, 60), end=end)
    yield _outage(chance, service, at)


def _outage(chance: random.Random, service: Service, at: float) -> Outage:
    return Outage(
        service=service,
        at=at,
        seconds=chance.choice([60.0, 300.0, 600.0, 2 * HOUR, 8 * HOUR]),
        hangs=chance.random() < 0.4,
    )
