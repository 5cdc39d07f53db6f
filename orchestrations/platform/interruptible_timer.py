"""A timer that an external event can end early."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

WAKE_UP = "wake_up"
"""The external event that ends a wait. It has no content: the waiter reads the state again."""


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
        if self._wake_up is None or not self._wake_up.is_completed:
            return False
        self._wake_up = None
        return True
