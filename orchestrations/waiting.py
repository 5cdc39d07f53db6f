"""How a run waits for its job: how often it polls, and how long a state may last. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from orchestrations.contracts.jobs import Job, JobState
from orchestrations.errors import DeadlineExceeded
from orchestrations.pipeline import Limits

# Azure ML sends no event when a job starts. The first polls see that of a short job, too.
FIRST_POLL_SECONDS = 2.0
LAST_POLL_SECONDS = 300.0
GROWTH = 1.5
# A poll is at most eight history events: a generation stays under 500, however long the job runs.
POLLS_PER_GENERATION = 50
# A request that fails has retries of its own, and their events: fewer fit into a history.
CANCELLATIONS_PER_GENERATION = 10
# An outage of Azure ML is no reason to end a training of days: so many polls in a row may fail,
# which takes 20 minutes to an hour. (One that fails is 40 events, with its retries.) So the first
# pause after a failure is that of a later poll, 15 s, even where polls have only begun.
POLL_FAILURES_ALLOWED = 10
POLLS_BEFORE_A_FAILURE = 4
# A cluster without nodes is made in well under a minute; a change by others may take longer.
CAPACITY_POLL_SECONDS = 15.0
CAPACITY_LIMIT_SECONDS = 1_200.0
# How long nodes that were given back may stay idle while a run waits for them.
NODES_POLL_SECONDS = 60.0

ENDED: frozenset[JobState] = frozenset({"completed", "failed", "cancelled"})


def poll_delay(polls: int, failures: int = 0) -> timedelta:
    """How long to wait for an event before the next poll.

    Args:
        polls: how many there were before, from 0.
        failures: how many of them have failed in a row, up to now.
    """
    if failures:
        polls = max(polls, POLLS_BEFORE_A_FAILURE + failures)
    # The exponent is bounded so that weeks of polling cannot overflow the float.
    return timedelta(seconds=min(FIRST_POLL_SECONDS * GROWTH ** min(polls, 50), LAST_POLL_SECONDS))


def check_deadline(job: Job, limits: Limits, *, state_since: datetime, now: datetime) -> None:
    """Return while the job's state may last.

    Raises:
        DeadlineExceeded: it has lasted longer than the pipeline's `limits` allow.
    """
    allowed = {"queued": limits.queued_seconds, "running": limits.running_seconds}.get(job.state)
    if allowed is not None and now - state_since > timedelta(seconds=allowed):
        raise DeadlineExceeded(
            f"job {job.name} has been {job.state} for more than limits.{job.state}_seconds "
            f"({allowed:.0f} s)"
        )
