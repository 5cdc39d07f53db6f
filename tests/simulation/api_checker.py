"""Invariants of the HTTP API: it answers, whatever hangs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.evidence import Evidence
from tests.simulation.excuses import excused

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


INVARIANTS_OF_THE_API = (the_api_answers,)
