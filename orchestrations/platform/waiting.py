"""Waits of orchestrators: pauses, limits, and a timer that an external event can end early."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime, timedelta
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

from orchestrations.configuration.pipeline import Limits
from orchestrations.contracts.training import Job, JobState
from orchestrations.errors import DeadlineExceeded
from orchestrations.platform.tasks import has_ended

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
# If no event reports a change, the wait polls after these delays.
FIRST_DELAY = timedelta(seconds=15)
LAST_DELAY = timedelta(minutes=15)
ENDED: frozenset[JobState] = frozenset({"completed", "failed", "cancelled"})
WAKE_UP = "wake_up"
"""The external event that ends a wait. It has no content: the waiter reads the state again."""


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

    A day costs about a hundred tries. A delay has whole seconds: a history that is exported without
    the clock's milliseconds has the same one.
    """
    whole = timedelta(seconds=waited // timedelta(seconds=1))
    return min(max(whole, first), LAST_DELAY)


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


class InterruptibleTimer:
    """The waits of one orchestration generation, one after another. Create one per generation.

    The open wait of a first timer would take the next event, before a second timer sees it.
    """

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context
        self._wake_up: Any = None
        self.restart_needed = False
        """Whether `wake_up` arrived before the wait began; if so, continue as new.

        SDK 1.7 keeps such an event and completes every later wait with it (a task that finds its
        event in `deferred_tasks` does not remove it), so that this generation would spin. A new
        generation drops buffered events; it must begin with reading the state.
        """

    def wait(self, until: datetime) -> Generator[Any, Any, bool]:
        """Return True if `wake_up` was raised before `until`, otherwise False.

        No timer is left open (an instance would stay Running until it fires). An open wait for
        `wake_up` is used again by the next call (an abandoned wait would swallow the event).
        """
        self._wake_up = self._wake_up or self._context.wait_for_external_event(WAKE_UP)
        # Typed as the SDK's base task, which has no cancel; create_timer always gives a TimerTask.
        timer: Any = self._context.create_timer(until)
        asked_at = self._context.current_utc_datetime
        winner = yield self._context.task_any([self._wake_up, timer])
        if winner is timer:
            return False
        timer.cancel()
        self._wake_up = None
        # An event after the wait began arrives in a new episode, which moves the clock.
        self.restart_needed = self._context.current_utc_datetime == asked_at
        return True

    def take_late_wake_up(self) -> bool:
        """Consume a `wake_up` that was raised after the last wait; return whether there was one."""
        if self._wake_up is None or not has_ended(self._wake_up):
            return False
        self._wake_up = None
        return True
