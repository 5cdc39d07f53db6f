"""Who waits for the end of an instance."""

from __future__ import annotations

import asyncio


class Endings:
    """Waits for the ends of instances; used by one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    async def wait(self, instance_id: str) -> None:
        """Return when `tell` is called next for this instance."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(instance_id, set()).add(future)
        try:
            await future
        finally:
            waiting = self._waiting.get(instance_id, set())
            waiting.discard(future)
            if not waiting:
                self._waiting.pop(instance_id, None)

    def tell(self, instance_id: str) -> None:
        """It is durable that an instance has ended."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result(None)
