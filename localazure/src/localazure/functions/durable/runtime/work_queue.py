"""Work by key: one run at a time for each key, a limited number of runs at once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Generic, TypeVar

from localazure.processes.background import cancel

K = TypeVar("K", bound=Hashable)

_logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


async def drain(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Wait up to `seconds` for tasks to end, then cancel them."""
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=seconds)
        await cancel(*late)


class WorkQueue(Generic[K]):
    """Runs `work(key)` for all requested keys, in the order of requests.

    A key that is requested while it runs will run again afterwards. If work raises, the error is
    logged and the work is retried after RETRY_SECONDS.

    Args:
        name: the name in the log.
        limit: the maximum number of runs at once.
        work: runs the work of a key; canceled if it has not ended when the queue stops.
    """

    def __init__(self, name: str, limit: int, work: Callable[[K], Awaitable[None]]) -> None:
        self._name = name
        self._limit = limit
        self._work = work
        self._ready: deque[K] = deque()
        self._queued: set[K] = set()
        self._running: dict[K, asyncio.Task[None]] = {}
        self._again: set[K] = set()
        self._later: dict[K, asyncio.TimerHandle] = {}
        self._stopped = False

    def request(self, key: K) -> None:
        """Request the work of a key."""
        if self._stopped or key in self._queued:
            return
        if key in self._running:
            self._again.add(key)
            return
        self._queued.add(key)
        self._ready.append(key)
        self._pump()

    def request_later(self, key: K, delay_seconds: float) -> None:
        """Request the work of a key after a delay. This replaces an earlier delayed request."""
        if self._stopped:
            return
        if (earlier := self._later.pop(key, None)) is not None:
            earlier.cancel()
        loop = asyncio.get_running_loop()
        self._later[key] = loop.call_later(delay_seconds, self._on_later, key)

    async def stop(self, drain_seconds: float) -> None:
        """Start no more work, wait up to `drain_seconds` for running work, then cancel it."""
        self._stopped = True
        for handle in self._later.values():
            handle.cancel()
        await drain(list(self._running.values()), drain_seconds)

    def _on_later(self, key: K) -> None:
        del self._later[key]
        self.request(key)

    def _pump(self) -> None:
        while self._ready and len(self._running) < self._limit and not self._stopped:
            key = self._ready.popleft()
            self._queued.discard(key)
            self._running[key] = asyncio.get_running_loop().create_task(self._run(key))

    async def _run(self, key: K) -> None:
        try:
            await self._work(key)
        except Exception:
            _logger.exception("%s %s failed; retrying in %g s", self._name, key, RETRY_SECONDS)
            self.request_later(key, RETRY_SECONDS)
        finally:
            del self._running[key]
            if key in self._again:
                self._again.discard(key)
                self.request(key)
            self._pump()
