"""Events of storage and of Azure ML: each is decided on, whatever they say and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from handlers.operate import job_events
from handlers.operate.reconciliation import reconciliation
from orchestrations.platform.waiting import WAKE_UP
from tests.simulation.feature import Feature, Mistake
from tests.simulation.features.faults import nothing_waits_for_ever
from tests.simulation.features.forgetting import Forget
from tests.simulation.story import (
    HOUR,
    Crash,
    DelayJobEvent,
    Outage,
    RemovePipeline,
    StrayJobEvent,
    Upload,
)
from tests.simulation.weeks import UPLOAD, UPLOADED_AT, quiet_week

if TYPE_CHECKING:
    from tests.simulation.evidence import Evidence


# How long an event may lie in its queue, behind an outage, before it is decided on.
EVENT_DELAY_SECONDS = 12 * HOUR


def every_event_is_decided(evidence: Evidence) -> Iterator[str]:
    """An event that reached its queue is in the event log, if a pipeline watched its zone.

    Unless it is about a blob whose name was erased there, or the host died while the log of that
    hour was written again without the name.
    """
    forgotten, topics = evidence.world.acts.accepted[Forget], evidence.world.topics
    may_be_cut = any(isinstance(each, Crash) for each in evidence.world.story.items)
    erased = {at // HOUR for it, at in topics.delivered.items() if topics.blobs[it] in forgotten}
    removals = [each for each in evidence.world.story.items if isinstance(each, RemovePipeline)]
    missing = {
        event
        for event, at in topics.delivered.items()
        if event not in evidence.decided_events
        and topics.blobs[event] not in forgotten
        and not (may_be_cut and at // HOUR in erased)
        and not any(
            each.at - EVENT_DELAY_SECONDS < at < each.at + each.seconds for each in removals
        )
    }
    if missing:
        yield f"no decision on {sorted(missing)}"


def foreign_job_events_are_alerted(evidence: Evidence) -> Iterator[str]:
    """Every event of Azure ML that is not understood is counted in an alert of its cause."""
    alerted = sum(
        json.loads(message.content)["data"]["count"]
        for message in evidence.alerts
        if message.subject == "events-rejected"
    )
    malformed = evidence.world.topics.malformed
    if malformed and not alerted:
        yield f"{malformed} events of Azure ML were not understood, and {alerted} are alerted"


async def _wake_blindly(starter: Any, run: str) -> bool:
    await starter.raise_event(run, WAKE_UP)
    return True


FEATURE = Feature(
    invariants=(every_event_is_decided, foreign_job_events_are_alerted),
    mistakes={
        "foreign job events are dropped": Mistake(
            plant=lambda: mock.patch.object(job_events, "keep_rejected"),
            found_by=foreign_job_events_are_alerted,
            items=[StrayJobEvent(at=500, kind="other workspace")],
        ),
        "late job events wake runs that have ended": Mistake(
            plant=lambda: mock.patch.object(job_events, "_wake", _wake_blindly),
            found_by=nothing_waits_for_ever,
            # The second event says that the job has ended.
            items=[UPLOAD, DelayJobEvent(number=2, delay=2 * HOUR)],
        ),
        "events are not given back": Mistake(
            plant=lambda: mock.patch.object(reconciliation, "give_back", return_value=0),
            found_by=every_event_is_decided,
            items=[UPLOAD, Outage(service="blobs", at=UPLOADED_AT - 100, seconds=2 * HOUR)],
        ),
    },
    kept={
        "events that Service Bus gave up on": quiet_week(
            Outage(service="blobs", at=HOUR, seconds=2 * HOUR),
            *(Upload(at=HOUR + n, path=f"{n}.png", content=f"{n}") for n in range(3)),
            seed=34,
        ),
    },
)
