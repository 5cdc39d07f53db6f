"""The wait that every orchestrator here does: until a time, or until somebody says `look`."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import Any

from azure.durable_functions import DurableOrchestrationContext

LOOK = "look"
"""The event that says "look again": it carries nothing, a listing or a GET is the truth."""


class Lookout:
    """The waits of one orchestration generation, one after another: make one a generation.

    A second one would wait behind the first one's open wait, which takes the next event.
    """

    def __init__(self, context: DurableOrchestrationContext) -> None:
        self._context = context
        self._look: Any = None
        self.worn_out = False
        """A `look` was there before it was waited for: go on in a new generation.

        SDK 1.7 keeps such an event and gives it to every later wait again (a task that finds its
        event in `deferred_tasks` does not remove it), so that this generation would spin. A new
        generation drops what is buffered, which loses nothing where it begins with a look.
        """

    def wait(self, until: datetime) -> Generator[Any, Any, bool]:
        """True when `look` was raised before `until`, False when the time is over.

        No timer is left open (an instance would stay Running until it fires), and a `look` that
        was not raised is waited for again next time (an abandoned wait would swallow the event).
        """
        self._look = self._look or self._context.wait_for_external_event(LOOK)
        # Typed as the SDK's base task, which has no cancel; create_timer always gives a TimerTask.
        timer: Any = self._context.create_timer(until)
        asked_at = self._context.current_utc_datetime
        winner = yield self._context.task_any([self._look, timer])
        if winner is timer:
            return False
        timer.cancel()
        self._look = None
        # An event that is waited for comes in an episode of its own, which moves the clock.
        self.worn_out = self._context.current_utc_datetime == asked_at
        return True
