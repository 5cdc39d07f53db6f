"""Service Bus hangs for hours, and people use the HTTP API and the page."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.platform import bulkheads
from tests.simulation.excuses import excused
from tests.simulation.feature import Drawn, Feature, Mistake, Week
from tests.simulation.story import HOUR, Act, CancelRun, Item, JobFate, Outage
from tests.simulation.weeks import FIRST, UPLOAD, first_job, quiet_week

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence


class OpenPage(Act):
    """The operators' page is open: it polls runs, pipelines and dead letters."""

    seconds: float


# The operators' page polls more often; an hour of it should not take a second.
PAGE_POLL_SECONDS = 60.0
POLLED = ("list_runs", "list_pipelines", "list_dead_letters")
"""The routes that an open page asks."""


ANSWER_SECONDS = 45.0
# What an answer is read from. Without Service Bus, it says what it does not know.
SERVICES = ("blobs", "task_hub", "azure_ml")


def the_api_answers(evidence: Evidence) -> Iterator[str]:
    """The page and cancellations have their answer, even while Service Bus hangs."""
    now = evidence.world.scheduler.time()
    for asked in evidence.world.acts.asked:
        answered_at = now if asked.answered_at is None else asked.answered_at
        late = answered_at - asked.at - ANSWER_SECONDS
        if late > 0 and late > excused(evidence, asked.at, answered_at, SERVICES):
            yield f"{asked.what}, asked at {asked.at:.0f} s, took {answered_at - asked.at:.0f} s"


def _hours(chance: random.Random, week: Week) -> Iterator[Item]:
    at = week.moment(chance) - 60.0
    seconds = chance.choice([HOUR, 5 * HOUR, 9 * HOUR])
    yield Outage(service="service_bus", at=at, seconds=seconds, hangs=True, endless=True)
    yield OpenPage(at=round(at + chance.uniform(0, HOUR), 3), seconds=900.0)
    yield CancelRun(at=round(at + chance.choice([120.0, 600.0, 2 * HOUR]), 3))


def _open_page(acts: Acts, item: OpenPage) -> None:
    """Ask for what the page shows, again and again."""
    world = acts.world
    if world.host.is_up:
        for route in POLLED:
            world.host.run(acts.timed(route, b""))
    left = item.seconds - PAGE_POLL_SECONDS
    if left > 0:
        again = item.model_copy(update={"seconds": left})
        world.scheduler.after(PAGE_POLL_SECONDS, functools.partial(_open_page, acts, again))


async def _ask_in_shared_threads(
    _bulkhead: Any, _limit: float, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    return await asyncio.to_thread(functools.partial(function, *args, **named))


def _call_without_limit(
    _bulkhead: Any, _limit: float, function: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    return function(*args, **named)


FEATURE = Feature(
    drawn={"a bus that hangs beside people": Drawn(weight=0.15, items=_hours)},
    acts={OpenPage: _open_page},
    invariants=(the_api_answers,),
    mistakes={
        "all services share threads": Mistake(
            plant=lambda: mock.patch.multiple(
                bulkheads.Bulkhead,
                ask_within=_ask_in_shared_threads,
                call_within=_call_without_limit,
            ),
            found_by=the_api_answers,
            items=[
                UPLOAD,
                first_job("never ends"),
                Outage(service="service_bus", at=2 * HOUR, seconds=HOUR, hangs=True, endless=True),
                OpenPage(at=2 * HOUR + 100, seconds=600),
                CancelRun(at=2 * HOUR + 600),
            ],
        ),
    },
    kept={
        "people and pages while Service Bus hangs for hours": quiet_week(
            FIRST,
            JobFate(number=1, end="never ends"),
            Outage(
                service="service_bus", at=3.9 * HOUR, seconds=3 * HOUR, hangs=True, endless=True
            ),
            OpenPage(at=3.95 * HOUR, seconds=1_800),
            CancelRun(at=4.2 * HOUR),
        ),
    },
)
