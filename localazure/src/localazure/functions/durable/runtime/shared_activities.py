"""Activities of a task hub that several hosts share: each host runs activities of any partition.

A claimed activity is invisible to other hosts for a lease period; the lease is renewed while it
runs, as in the Azure Storage provider's work-item queue. The activities of a host that died become
visible again. If the host was only slow, an activity runs twice, and the first result counts.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence

from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.records import Activity, Message
from localazure.functions.durable.store.shared_store import SharedStore

_logger = logging.getLogger(__name__)


class SharedActivities:
    """Claims and runs activities, a limited number at once.

    Args:
        settings: its settings.
        store: the store with claims and results.
        worker: runs them.
    """

    def __init__(self, settings: HubSettings, store: SharedStore, worker: Worker) -> None:
        self._store = store
        self._worker = worker
        self._limit = settings.options.max_concurrent_activity_functions
        self._running: dict[asyncio.Task[None], Activity] = {}
        self._is_stopped = False

    async def claim(self) -> None:
        """Claim and start as many activities as the limit allows.

        Raises:
            sqlite3.Error: the store failed.
        """
        most = self._limit - len(self._running)
        if self._is_stopped or most <= 0 or not self._store.has_claimable():
            return
        for activity in await self._store.claim_activities(most):
            task = asyncio.create_task(self._run(activity))
            self._running[task] = activity
            task.add_done_callback(self._on_ended)

    async def renew(self) -> None:
        """Renew the claims of running activities. Raises the errors of `claim`."""
        if self._running:
            await self._store.renew_claims(list(self._running.values()))

    async def stop(self, drain_seconds: float) -> None:
        """Start no more activities, wait for running ones, then cancel them."""
        self._is_stopped = True
        await work_queue.drain(list(self._running), drain_seconds)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._store.on_sent()  # triggers a poll, which claims another activity

    async def _run(self, activity: Activity) -> None:
        outcome = await self._worker.run_activity(activity)
        while True:
            try:
                if isinstance(outcome, Activity):  # to be continued later, on any host
                    await self._store.postpone_activity(outcome)
                else:
                    end = self._store.message(activity.instance_id, outcome, activity.execution_id)
                    await self._store.complete_activity(activity.event_id, end)
            except sqlite3.Error as error:
                _logger.warning(
                    "the result of activity '%s' cannot be recorded; retrying in %g s: %s",
                    activity.name,
                    work_queue.RETRY_SECONDS,
                    error,
                )
                await asyncio.sleep(work_queue.RETRY_SECONDS)
            else:
                return

    # --- the interface of `ActivityRunner`; this host's memory holds no activities of the hub --

    def add(self, activity: Activity) -> None:
        """Do nothing: a host will claim the activity."""

    def take_up(self, activities: list[Activity]) -> None:
        """Do nothing: activities are claimed by `claim`."""

    def has_scheduled(self, execution_id: str) -> bool:
        """Return False: not known, since other hosts may have them."""
        del execution_id
        return False

    def drop(self, execution_id: str) -> None:
        """Do nothing: their rows are deleted."""

    def settle(self, messages: Sequence[Message]) -> None:
        """Do nothing: results are messages with rows of their own."""

    def forget(self, execution_id: str) -> None:
        """Do nothing; see `settle`."""
