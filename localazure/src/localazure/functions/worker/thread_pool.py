"""Threads for synchronous functions that never delay the end of the process.

Unlike the threads of concurrent.futures, these are daemons: a function that blocks forever occupies
its thread, but the host still ends after the drain, as the real host does.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from localazure.functions import logs

_LOG = logging.getLogger(logs.HOST_LOGGER)

# The default of the real worker on Python 3.9 and later (from concurrent.futures).
# https://learn.microsoft.com/azure/azure-functions/functions-app-settings#python_threadpool_thread_count
_DEFAULT_THREADS: Final = min(32, (os.cpu_count() or 1) + 4)
_THREADS_SETTING: Final = "PYTHON_THREADPOOL_THREAD_COUNT"

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]
_Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]


def thread_count(settings: Mapping[str, str]) -> int:
    """The number of threads for an app's functions, from its app settings."""
    text = settings.get(_THREADS_SETTING)
    if text is None:
        return _DEFAULT_THREADS
    try:
        count = int(text)
    except ValueError:
        count = 0
    if 1 <= count <= sys.maxsize:
        return count
    _LOG.warning(
        "the app setting %s is %r, not a number of threads; there are %d, the default",
        _THREADS_SETTING,
        text,
        _DEFAULT_THREADS,
    )
    return _DEFAULT_THREADS


class WorkerPool:
    """A pool of up to `size` daemon threads, started on demand; used by one event loop."""

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._outcomes: deque[_Outcome] = deque()
        self._is_waking = False

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a thread."""
        return max(self._busy - self._size, 0)

    async def run(self, call: Callable[[], T]) -> T:
        """Call a function in a thread, with the caller's context variables.

        If the wait is canceled before the call begins, there is no call. Later it goes on, because
        a thread cannot be stopped.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        self._busy += 1
        # Only the thread of the event loop changes the counts.
        if self._busy > self._threads and self._threads < self._size:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put((lambda: context.run(call), future, loop))
        return await future

    def close(self) -> None:
        """End idle threads; busy threads end after their calls."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            try:
                result, error = None if future.cancelled() else call(), None
            except BaseException as raised:  # noqa: BLE001 - passed to the caller
                result, error = None, raised
            self._outcomes.append((future, result, error))
            # Waking the loop is a system call; one serves all calls that end before the loop runs.
            # A thread that sees the flag set has appended before the loop clears it and reads.
            if not self._is_waking:
                self._is_waking = True
                try:
                    loop.call_soon_threadsafe(self._resolve)
                except RuntimeError:  # the loop is closed, so nothing waits
                    return
            # Otherwise a traceback in `error` keeps the function's frames until the next job.
            del job, call, future, result, error

    def _resolve(self) -> None:
        self._is_waking = False
        while self._outcomes:
            future, result, error = self._outcomes.popleft()
            self._busy -= 1
            if future.cancelled():
                continue
            if isinstance(error, StopIteration):  # a future does not accept StopIteration
                error = RuntimeError(f"the function raised {error!r}")
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
