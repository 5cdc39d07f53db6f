"""A plugin of pytest: a scheduler in place of the Durable Task SDK's backend in memory."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Final

import durabletask.testing

from localazure.scheduler.server import running

START_SECONDS: Final = 30


class Backend:
    """A scheduler in a thread, with the methods of the backend that tests call."""

    def __init__(self, port: int, max_history_size: int = 0) -> None:
        del max_history_size
        self._port = port
        self._folder = Path(tempfile.mkdtemp())
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(START_SECONDS), "the scheduler did not start"

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        async with running(self._folder, self._port):
            self._started.set()
            await self._end.wait()

    def stop(self, grace: float | None = None) -> None:
        """End it."""
        del grace
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(START_SECONDS)

    def reset(self) -> None:
        """Delete its files."""
        shutil.rmtree(self._folder)


durabletask.testing.create_test_backend = Backend  # pyright: ignore[reportAttributeAccessIssue]
