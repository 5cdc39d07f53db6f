"""Waits: the pauses between polls, and the limits of a job's states. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from orchestrations.configuration.pipeline import Limits
from orchestrations.contracts.jobs import Job, JobState
from orchestrations.errors import DeadlineExceeded

# Azure ML sends no event when a job starts. The first polls are frequent, for short jobs.
FIRST_POLL_SECONDS = 2.0
LAST_POLL_SECONDS = 300.0
GROWTH = 1.5
# A poll is at most eight history events, so that a generation stays under 500.
POLLS_PER_GENERATION = 50
# A failing request adds the events of its retries, so that fewer fit into a generation.
CANCELLATIONS_PER_GENERATION = 10
# An outage of Azure ML must not end a training of days: this many polls in a row may fail, which
# takes 20 minutes to an hour. (A failed poll is 16 events, with its retry.) For this, the pause
# after a first failure is that of a later poll, 15 s, even at the first polls.
POLL_FAILURES_ALLOWED = 10
POLLS_BEFORE_A_FAILURE = 4
# Creating a cluster without nodes takes well under a minute; a change by others may take longer.
CAPACITY_POLL_SECONDS = 15.0
CAPACITY_LIMIT_SECONDS = 1_200.0
# A run that waits for nodes. It is woken when they are returned, so most of its polls find nothing.
FIRST_NODES_DELAY = timedelta(minutes=1)
NODES_GENERATION = timedelta(hours=1)
# What nobody reports is tried again after these delays.
FIRST_DELAY = timedelta(seconds=15)
LAST_DELAY = timedelta(minutes=15)

ENDED: frozenset[JobState] = frozenset({"completed", "failed", "cancelled"})


def poll_delay(polls: int, failures: int = 0) -> timedelta:
    """The longest wait for an event before the next poll.

    Args:
        polls: the number of polls so far.
        failures: how many of the last polls have failed in a row.
    """
    if failures:
        polls = max(polls, POLLS_BEFORE_A_FAILURE + failures)
    # The exponent is bounded so that weeks of polling cannot overflow the float.
    return timedelta(seconds=min(FIRST_POLL_SECONDS * GROWTH ** min(polls, 50), LAST_POLL_SECONDS))


def growing_delay(waited: timedelta, first: timedelta = FIRST_DELAY) -> timedelta:
    """The time until the next try: as long as the wait so far, within limits.

    A day costs about a hundred tries.
    """
    return min(max(waited, first), LAST_DELAY)


def check_deadline(job: Job, limits: Limits, *, state_since: datetime, now: datetime) -> None:
    """Check how long the job's state has lasted.

    Raises:
        DeadlineExceeded: the state has lasted longer than the pipeline's `limits` allow.
    """
    allowed = {"queued": limits.queued_seconds, "running": limits.running_seconds}.get(job.state)
    if allowed is not None and now - state_since > timedelta(seconds=allowed):
        raise DeadlineExceeded(
            f"job {job.name} has been {job.state} for more than limits.{job.state}_seconds "
            f"({allowed:.0f} s)"
        )
