"""An event loop in a thread of its own, for the coroutines of an app.

On Azure, the app runs in another process than the host. A coroutine that blocks, as one that calls
a synchronous client of the host, must not block the host here either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class AppLoop:
    """A running event loop. Coroutines keep the caller's context."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="app's event loop", daemon=True
        )
        self._thread.start()

    async def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on it; a cancellation cancels the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def close(self) -> None:
        """End it. A coroutine that still runs does not go on."""
        self._loop.call_soon_threadsafe(self._loop.stop)
