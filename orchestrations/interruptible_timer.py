"""A timer that an external event cuts short."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

WAKE_UP = "wake_up"
"""The external event that ends a wait. It carries nothing: a record, a listing or a GET decides."""


class InterruptibleTimer:
    """The waits of one orchestration generation, one after another: make one per generation.

    A second timer would wait behind the first one's open wait, which takes the next event.
    """

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context
        self._wake_up: Any = None
        self.restart_needed = False
        """A `wake_up` had arrived before the wait began: continue as a new generation.

        SDK 1.7 keeps such an event and gives it to every later wait again (a task that finds its
        event in `deferred_tasks` does not remove it), so that this generation would spin. A new
        generation drops what is buffered, which loses nothing where it begins by reading the state.
        """

    def wait(self, until: datetime) -> Generator[Any, Any, bool]:
        """True when `wake_up` was raised before `until`, False when the time is over.

        No timer is left open (an instance would stay Running until it fires), and a `wake_up` that
        was not raised is waited for again next time (an abandoned wait would swallow the event).
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
        # An event that is waited for comes in an episode of its own, which moves the clock.
        self.restart_needed = self._context.current_utc_datetime == asked_at
        return True

    def take_late_wake_up(self) -> bool:
        """Whether `wake_up` was raised after the last wait was over; it then counts as taken."""
        if self._wake_up is None or not self._wake_up.is_completed:
            return False
        self._wake_up = None
        return True
