"""A host's share of a task hub that several hosts run.

1. Every third of a lease period: renew the leases of partitions and of running activities, and take
   the partitions that the host should have (`engine.partitions`).
2. Every `POLL_SECONDS`, and at once when this host has written something: check for lost
   partitions, pass new messages and instances to the engine, claim activities, and notify the
   waiters of instances that ended on another host.
3. At the end: release the leases, so that other hosts need not wait until they expire.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final

from localazure.functions.durable.engine.instance import FINISHED
from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.dispatcher import Dispatcher
from localazure.functions.durable.runtime.shared_activities import SharedActivities
from localazure.functions.durable.store.shared_store import SharedStore
from localazure.processes.background import cancel
from localazure.processes.pauses import wait_at_most

_logger = logging.getLogger(__name__)

# The Azure Storage provider polls its queues every 0 to 30 s, depending on the load. Here, a
# poll is only a few indexed reads.
POLL_SECONDS: Final = 0.05
RENEWALS_PER_LEASE: Final = 3


class HubShare:
    """Keeps the leases of one host, and delivers what other hosts and clients sent to it.

    Args:
        store: the task hub's store.
        dispatcher: the engine that uses this store.
    """

    def __init__(self, store: SharedStore, dispatcher: Dispatcher) -> None:
        assert isinstance(dispatcher.activities, SharedActivities)
        self._store = store
        self._dispatcher = dispatcher
        self._activities = dispatcher.activities
        self._has_news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Take leases, and start the engine.

        Raises:
            StartError: a running host has another number of partitions.
        """
        await self._store.prepare()
        self._store.on_sent = self._has_news.set
        self._dispatcher.start()
        await self._renew()
        renewal_seconds = self._store.lease.total_seconds() / RENEWALS_PER_LEASE
        self._tasks = [
            asyncio.create_task(self._repeat(self._renew, asyncio.Event(), renewal_seconds)),
            asyncio.create_task(self._repeat(self._poll, self._has_news, POLL_SECONDS)),
        ]

    async def stop(self, drain_seconds: float) -> None:
        """Wait up to `drain_seconds` for running work, then release the leases."""
        await self._dispatcher.stop(drain_seconds)
        await cancel(*self._tasks)
        with contextlib.suppress(sqlite3.Error):  # the leases expire anyway
            await self._store.release_leases()

    async def _renew(self) -> None:
        await self._store.renew_leases()
        await self._activities.renew()

    async def _poll(self) -> None:
        self._has_news.clear()
        self._store.check_leases()
        arrived = self._store.arrived()
        for instance_id in arrived.instance_ids:
            self._dispatcher.wake(instance_id)
        for message in arrived.messages:
            self._dispatcher.deliver(message)
        await self._activities.claim()
        waiters = self._dispatcher.completion_waiters
        for instance_id in waiters.instance_ids():
            instance = self._store.instance(instance_id)
            if instance is not None and instance.status in FINISHED:
                waiters.notify(instance_id)

    async def _repeat(
        self, work: Callable[[], Awaitable[None]], news: asyncio.Event, pause_seconds: float
    ) -> None:
        """Call `work` after each pause, and at once when `news` is set."""
        while True:
            await wait_at_most(news, pause_seconds)
            try:
                await work()
            except Exception:  # without renewals and polls, the host would do no work
                _logger.exception("task hub failed; retrying in %g s", work_queue.RETRY_SECONDS)
                await asyncio.sleep(work_queue.RETRY_SECONDS)
