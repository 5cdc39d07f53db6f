"""Activities of a task hub that several hosts share: each host runs what it can, of any partition.

An activity that a host claims is invisible to the others for the time of a lease, which is renewed
while it runs: the work-item queue of the Azure Storage provider. The activities of a host that died
become visible again. If a host was only slow, an activity runs twice, and the first end counts.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence

from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.activity_call import ActivityCall
from localazure.functions.durable.runtime.hosted_app import HostedApp
from localazure.functions.durable.store.records import Activity, Message
from localazure.functions.durable.store.shared_store import SharedStore

_logger = logging.getLogger(__name__)


class SharedActivities:
    """Claims and runs activities, so many at once.

    Args:
        app: has them.
        store: where they are claimed and their ends recorded.
    """

    def __init__(self, app: HostedApp, store: SharedStore) -> None:
        self._store = store
        self._call = ActivityCall(app)
        self._limit = app.options.max_concurrent_activity_functions
        self._running: dict[asyncio.Task[None], Activity] = {}
        self._is_stopped = False

    async def claim(self) -> None:
        """Begin as many as may run beside those that do.

        Raises:
            sqlite3.Error: the store does not answer.
        """
        most = self._limit - len(self._running)
        if self._is_stopped or most <= 0 or not self._store.has_claimable():
            return
        for activity in await self._store.claim_activities(most):
            task = asyncio.create_task(self._run(activity))
            self._running[task] = activity
            task.add_done_callback(self._on_ended)

    async def renew(self) -> None:
        """Keep what runs. Raises as `claim`."""
        if self._running:
            await self._store.renew_claims(list(self._running.values()))

    async def stop(self, drain_seconds: float) -> None:
        """Begin nothing more, wait so long for what runs, then cancel it."""
        self._is_stopped = True
        await work_queue.drain(list(self._running), drain_seconds)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._store.on_sent()  # there is room for another one

    async def _run(self, activity: Activity) -> None:
        outcome = await self._call.run(activity)
        while True:
            try:
                if isinstance(outcome, Activity):  # it goes on later, on any host
                    await self._store.postpone_activity(outcome)
                else:
                    end = self._store.message(activity.instance_id, outcome, activity.execution_id)
                    await self._store.complete_activity(activity.event_id, end)
            except sqlite3.Error as error:
                _logger.warning(
                    "the end of activity '%s' cannot be recorded, trying again in %g s: %s",
                    activity.name,
                    work_queue.RETRY_SECONDS,
                    error,
                )
                await asyncio.sleep(work_queue.RETRY_SECONDS)
            else:
                return

    # --- as the engine's own activities: none of them is in its memory -----------------------

    def add(self, activity: Activity) -> None:
        """A host will claim it."""

    def take_up(self, activities: list[Activity]) -> None:
        """They are claimed one by one."""

    def has_scheduled(self, execution_id: str) -> bool:
        """Not known: they may be anywhere."""
        del execution_id
        return False

    def drop(self, execution_id: str) -> None:
        """Their rows are gone."""

    def settle(self, messages: Sequence[Message]) -> None:
        """Their ends are messages with rows of their own."""

    def forget(self, execution_id: str) -> None:
        """See `settle`."""
