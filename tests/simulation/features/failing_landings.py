"""Landings that fail: the zone is refused, or its pipeline is gone."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING
from unittest import mock

from handlers.landing import zone_troubles
from handlers.operate.api import pipelines as pipelines_of_api
from orchestrations.names import REQUEST_PREFIX, landing_instance, pipeline_of_landing
from tests.simulation.excuses import SERVICES_OF_ALERTS, away, excused
from tests.simulation.fakes.training import LANDING_CONTAINER
from tests.simulation.feature import Drawn, Feature, Mistake, Week
from tests.simulation.scheduler import START
from tests.simulation.story import (
    HOUR,
    CallFault,
    Item,
    Refuse,
    RemovePipeline,
    Terminate,
    TerminateAfter,
)
from tests.simulation.weeks import FIRST, UPLOAD, UPLOADED_AT, quiet_week

if TYPE_CHECKING:
    import random

    from tests.simulation.acts import Acts
    from tests.simulation.evidence import Evidence
    from tests.simulation.world import Failure


LANDING_FAILED = "landing-failed"
# From the end of the round that found it: its alert is on its way.
TOLD_AFTER_SECONDS = 600.0


def _alerts(evidence: Evidence) -> list[tuple[float, str]]:
    return [
        ((each.enqueued_at - START).total_seconds(), evidence.data_of(each)["landing"])
        for each in evidence.alerts
        if each.subject == LANDING_FAILED
    ]


def _reconciled_at(evidence: Evidence, at: float) -> float | None:
    """When what happened must be known: at the end of one whole round of reconciliation.

    A round that a service does not let come through is none, and a fault may cost another.
    """
    faults = (isinstance(each, CallFault) for each in evidence.world.story.items)
    needed = 2 if any(faults) else 1
    for began, ended in evidence.world.host.rounds:
        if began is None or ended is None or began <= at:
            continue
        needed -= not away(evidence, began, ended, SERVICES_OF_ALERTS)
        if not needed:
            return ended
    return None


def _landed(evidence: Evidence, landing: str) -> Iterator[float]:
    """When the landing ended well, or its batch was frozen: what failed before is over then."""
    yield from (at for at, ended in evidence.world.landed if ended == landing)
    for batch in evidence.batches_of_all:
        if landing_instance(batch.result.pipeline, batch.dataset.partition) == landing:
            yield (batch.dataset.frozen_at - START).total_seconds()


def _cause_began(evidence: Evidence, number: int) -> float:
    """When the landing first failed since it last landed."""
    failure = evidence.world.failures[number]
    landed = (at for at in _landed(evidence, failure.landing) if at < failure.at)
    since = max(landed, default=0.0)
    return min(
        each.at
        for each in evidence.world.failures
        if each.landing == failure.landing and each.at >= since
    )


def failing_landings_are_told(evidence: Evidence) -> Iterator[str]:
    """Operators know of a landing that failed after one round of reconciliation."""
    alerts = _alerts(evidence)
    for number, failure in enumerate(evidence.world.failures):
        if failure.landing.startswith(REQUEST_PREFIX):
            continue  # every_request_ends_or_is_alerted
        reconciled_at = _reconciled_at(evidence, failure.at)
        if reconciled_at is None:
            continue  # the week is over before
        due = reconciled_at + TOLD_AFTER_SECONDS
        began = _cause_began(evidence, number)
        told = [at for at, landing in alerts if landing == failure.landing and at >= began]
        late = min(told, default=evidence.world.scheduler.time()) - due
        if late > excused(evidence, failure.at, due + max(late, 0.0), SERVICES_OF_ALERTS):
            yield f"{failure.landing} failed at {failure.at:.0f} s: {failure.error[:200]}"


def failing_landings_are_shown(evidence: Evidence) -> Iterator[str]:
    """After one round of reconciliation, the API shows that the pipeline needs a person."""
    world = evidence.world
    for failure in world.failures:
        reconciled_at = _reconciled_at(evidence, failure.at)
        if failure.landing.startswith(REQUEST_PREFIX) or reconciled_at is None:
            continue
        again = (at for at in _landed(evidence, failure.landing) if at > failure.at)
        until = min(again, default=world.scheduler.time())
        for at, states in world.acts.looked:
            state = states.get(pipeline_of_landing(failure.landing))
            if reconciled_at <= at < until and state not in ("needs-a-human", "paused", None):
                yield f"{failure.landing} failed at {failure.at:.0f} s: {state} at {at:.0f} s"


def _kind(failure: Failure) -> str:
    """The cause of a failure, as far as its text names a type of error."""
    known = ("TimeoutError", "no result within", "HttpResponseError", "ServiceResponseError")
    return next((each for each in known if each in failure.error), failure.error)


def one_cause_has_one_alert(evidence: Evidence) -> Iterator[str]:
    """A landing that fails again and again is one alert until it lands."""
    failures, story = evidence.world.failures, evidence.world.story
    for landing in {each.landing for each in failures}:
        alerts = [at for at, about in _alerts(evidence) if about == landing]
        causes = {
            (_cause_began(evidence, number), _kind(each))
            for number, each in enumerate(failures)
            if each.landing == landing
        }
        # That people terminated it is a cause, too.
        terminated = sum(isinstance(each, Terminate | TerminateAfter) for each in story.items)
        if len(alerts) > len(causes) + terminated:
            yield f"{landing} has {len(alerts)} alerts for {len(causes)} causes"


def _refusals(chance: random.Random, week: Week) -> Iterator[Item]:
    seconds = chance.choice([600.0, 3 * HOUR, 30 * HOUR])
    yield Refuse(at=week.moment(chance), seconds=seconds, status=chance.choice([403, 404]))


def _removals(chance: random.Random, week: Week) -> Iterator[Item]:
    seconds = [600.0, 9 * HOUR, 30 * HOUR]
    yield RemovePipeline(at=week.moment(chance), seconds=chance.choice(seconds))


def _refuse(acts: Acts, item: Refuse) -> None:
    refusals = acts.world.account.refusals
    refusals[LANDING_CONTAINER] = item.status
    end = functools.partial(refusals.pop, LANDING_CONTAINER, None)
    acts.world.scheduler.after(item.seconds, end)


def _remove_pipeline(acts: Acts, item: RemovePipeline) -> None:
    acts.world.deploy_without_pipeline()
    again = functools.partial(acts.world.deploy, acts.world.last_deployed)
    acts.world.scheduler.after(item.seconds, again)


REFUSED: list[Item] = [UPLOAD, Refuse(at=UPLOADED_AT + 100, seconds=10 * HOUR, status=403)]

FEATURE = Feature(
    drawn={
        "refusals of the landing container": Drawn(weight=0.1, items=_refusals),
        "pipelines that are removed": Drawn(weight=0.05, items=_removals),
    },
    acts={Refuse: _refuse, RemovePipeline: _remove_pipeline},
    invariants=(failing_landings_are_told, failing_landings_are_shown, one_cause_has_one_alert),
    mistakes={
        "failing landings are told to nobody": Mistake(
            plant=lambda: mock.patch.object(zone_troubles, "alert_operators"),
            found_by=failing_landings_are_told,
            items=REFUSED,
        ),
        "failing landings are not shown": Mistake(
            plant=lambda: mock.patch.object(pipelines_of_api, "read_troubles", return_value={}),
            found_by=failing_landings_are_shown,
            items=REFUSED,
        ),
    },
    kept={
        "storage refuses the zone for days": quiet_week(
            FIRST, Refuse(at=HOUR + 100, seconds=30 * HOUR, status=403)
        ),
        "the zone's container is gone for days": quiet_week(
            FIRST, Refuse(at=HOUR + 100, seconds=30 * HOUR, status=404)
        ),
        "a pipeline is removed while its batch settles": quiet_week(
            FIRST, RemovePipeline(at=HOUR + 100, seconds=30 * HOUR)
        ),
    },
)
