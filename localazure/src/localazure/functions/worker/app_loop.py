"""An event loop in a thread of its own, for the coroutines of an app.

On Azure, the app runs in another process than the host. A coroutine that blocks, as one that calls
a synchronous client of the host, must not block the host here either.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

Result = TypeVar("Result")


# What still runs at the end may block its thread; the process does not wait longer for it.
_END_SECONDS: Final = 1.0


class AppLoop:
    """A running event loop. Coroutines keep the caller's context."""

    def __init__(self) -> None:
        started = threading.Event()
        self._thread = threading.Thread(
            target=asyncio.run, args=[self._serve(started)], name="app's event loop", daemon=True
        )
        self._thread.start()
        started.wait()

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        started.set()
        await self._end.wait()

    async def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on it; a cancellation cancels the coroutine."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def close(self) -> None:
        """Cancel what still runs, and end it."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_END_SECONDS)
