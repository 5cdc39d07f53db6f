"""What goes wrong in any week, and what holds whatever goes wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from localazure.functions.durable.engine.instance import Status
from orchestrations.platform.activities import ACTIVITIES
from tests.simulation.excuses import SERVICE_ERRORS
from tests.simulation.feature import LAST_UPLOAD, Drawn, Feature, Week
from tests.simulation.features.redrives import MORE_ATTEMPTS
from tests.simulation.story import (
    DAY,
    HOUR,
    CallEnd,
    CallFault,
    Crash,
    DelayEvent,
    DelayJobEvent,
    EveryActivityTwice,
    Item,
    LoseEvent,
    LoseJobEvent,
    Outage,
    OutageAfter,
    RepeatEvent,
    SecondCopy,
    Service,
    StrayJobEvent,
    StrayKind,
    Terminate,
    TerminateAfter,
)

if TYPE_CHECKING:
    import random

    from tests.simulation.evidence import Evidence

HISTORY_LIMIT_EVENTS = 1_500
# How many calls of each service a week has, about.
CALLS: dict[Service, int] = {
    "blobs": 600,
    "service_bus": 150,
    "event_grid": 12,
    "azure_ml": 120,
    "webhooks": 12,
    "task_hub": 120,
}
CALL_LIMIT = 20_000


def only_services_fail(evidence: Evidence) -> Iterator[str]:
    """Every exception is explained by a fault of a service."""
    yield from evidence.world.host.mistakes
    yield from (str(fault) for fault in evidence.world.scheduler.faults)


def nothing_waits_for_ever(evidence: Evidence) -> Iterator[str]:
    """Days after the last fault everything is at its end."""
    if not evidence.world.is_idle:
        yield from evidence.world.what_goes_on()


def cost_is_bounded(evidence: Evidence) -> Iterator[str]:
    """Calls of services, history events, and attempts."""
    world = evidence.world
    if world.network.total_calls > CALL_LIMIT:
        yield f"{world.network.total_calls} calls: {world.network.operations.most_common(5)}"
    for instance in world.hub.instances.values():
        if instance.longest_history > HISTORY_LIMIT_EVENTS:
            yield f"{instance.id} has {instance.longest_history} history events"
    lives = [life for life in world.cluster.lives.values() if life.name == life.run]
    attempts = Counter(life.name.rpartition("-")[0] for life in lives)
    more = sum(
        MORE_ATTEMPTS if change == "attempts" else 1 for change in world.acts.changed.values()
    )
    attempts_of_files = max(each.pipeline.retry.attempts for each in world.releases)
    allowed = attempts_of_files + world.acts.redrives + more
    for version, count in attempts.items():
        if count > allowed:
            yield f"{version} was trained {count} times, {allowed} are allowed"


def instances_break_for_a_reason(evidence: Evidence) -> Iterator[str]:
    """An instance fails because a service was out for longer than its retries, or by people."""
    terminations = any(
        isinstance(item, Terminate | TerminateAfter) for item in evidence.world.story.items
    )
    for instance in evidence.world.hub.instances.values():
        if instance.status is Status.TERMINATED and not terminations:
            yield f"{instance.id} was terminated by nobody"
        if instance.status is Status.FAILED and not any(
            name in (instance.output_json or "") for name in SERVICE_ERRORS
        ):
            yield f"{instance.id}: {instance.output}"


def _event_faults(chance: random.Random, week: Week) -> Iterator[Item]:
    for _ in range(chance.randint(0, 4)):
        number = chance.randint(1, week.changes)
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


def _call_faults(chance: random.Random, _week: Week) -> Iterator[Item]:
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


def _host_faults(chance: random.Random, _week: Week) -> Iterator[Item]:
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


FEATURE = Feature(
    drawn={
        # A third of all weeks are calm, and the others are wild in different ways.
        "faults of events": Drawn(weight=0.67, items=_event_faults),
        "faults of calls": Drawn(weight=0.67, items=_call_faults),
        "faults of the host": Drawn(weight=0.67, items=_host_faults),
    },
    invariants=(
        only_services_fail,
        nothing_waits_for_ever,
        cost_is_bounded,
        instances_break_for_a_reason,
    ),
)
