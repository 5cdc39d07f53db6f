"""Completion waiters: tasks that wait until an instance has ended."""

from __future__ import annotations

import asyncio


class CompletionWaiters:
    """Tasks of one event loop that wait for instances, by instance id."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    async def wait(self, instance_id: str) -> None:
        """Wait for the next `notify` of this instance."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance_id, set()).add(future)
        try:
            await future
        finally:
            waiting = self._waiting.get(instance_id, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(instance_id, None)

    def instance_ids(self) -> list[str]:
        """The instances that tasks wait for."""
        return list(self._waiting)

    def notify(self, instance_id: str) -> None:
        """Wake the waiters of an instance whose end is durable."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result(None)
