"""The threads in which services are asked: a bounded number for each kind of service (a bulkhead).

A service that hangs fills its own threads, and no others: what depends on another service goes on.
The SDKs' timeouts do not suffice: with a broker that accepts connections and never answers, a call
of the Service Bus SDK does not return for minutes.

A call in one of these threads does not ask the same bulkhead again: it would wait for itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")
logger = logging.getLogger("landfall")
# Bounds the memory of waiting jobs while a service hangs.
LIMIT_JOBS = 1_000


class TookTooLong(TimeoutError):
    """The call returned no result in time. It may still take effect."""


class Unavailable(TookTooLong):
    """A service gave no answer in time, or all of its threads wait for such answers."""


class Bulkhead:
    """The threads for one kind of service. Thread-safe.

    A call that takes too long is abandoned: its caller goes on, and its thread is held until the
    SDK returns. While every thread is held in this way, a new call fails at once.
    """

    def __init__(self, service: str, *, threads: int, limit_seconds: float) -> None:
        """Make a bulkhead; its threads are started when they are needed.

        Args:
            service: the name of the service in error messages.
            threads: how many calls run at once; others wait for their turn.
            limit_seconds: of a call, with its wait for a turn, unless the caller gives another.
        """
        self.service = service
        self.limit_seconds = limit_seconds
        self._limit_threads = threads
        self._lock = threading.Lock()
        self._threads = 0
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._abandoned: set[Future[Any]] = set()

    async def ask(
        self, function: Callable[Given, Result], *args: Given.args, **named: Given.kwargs
    ) -> Result:
        """Call a function in a thread, and await its result.

        Raises:
            Unavailable: there is no result in time; the call may still take effect.
        """
        return await self.ask_within(self.limit_seconds, function, *args, **named)

    async def ask_within(
        self,
        limit_seconds: float,
        function: Callable[Given, Result],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """As `ask`, with another limit."""
        call = self._begin(functools.partial(function, *args, **named))
        result = asyncio.wrap_future(call)
        try:
            await asyncio.wait([result], timeout=limit_seconds)
            if not result.done():
                raise self._late(limit_seconds)
            return result.result()
        finally:
            result.cancel()  # what comes later is nobody's
            self._abandon(call)

    def call_within(
        self,
        limit_seconds: float,
        function: Callable[Given, Result],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Result:
        """As `ask_within`, for callers outside the event loop: waits for the result."""
        call = self._begin(functools.partial(function, *args, **named))
        try:
            wait([call], limit_seconds)
            if not call.done():
                raise self._late(limit_seconds)
            return call.result()
        finally:
            self._abandon(call)

    def _begin(self, function: Callable[[], Result]) -> Future[Result]:
        call: Future[Result] = Future()
        context = contextvars.copy_context()  # keeps the caller's trace context
        with self._lock:
            if len(self._abandoned) >= self._limit_threads:
                raise Unavailable(
                    f"{self.service} does not answer: {len(self._abandoned)} calls have waited "
                    "longer than their limit"
                )
            self._queue.append((call, functools.partial(context.run, function)))
            if self._threads < self._limit_threads:
                self._threads += 1
                threading.Thread(target=self._work, name=self.service, daemon=True).start()
        return call

    def _late(self, limit_seconds: float) -> Unavailable:
        return Unavailable(f"{self.service} did not answer within {limit_seconds:g} s")

    def _abandon(self, call: Future[Any]) -> None:
        """Give up a call that has not ended: it does not begin, or its thread is counted."""
        with self._lock:
            if not call.cancel() and not call.done():
                self._abandoned.add(call)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._threads -= 1
                    return
                call, function = self._queue.popleft()
            if not call.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                call.set_exception(error)
            else:
                call.set_result(result)
            with self._lock:
                self._abandoned.discard(call)


# The limits are those of people who wait for an answer of the API.
STORAGE = Bulkhead("storage", threads=10, limit_seconds=20.0)
# A cancellation does not wait for its turn behind other requests.
CANCELLATIONS = Bulkhead("storage", threads=4, limit_seconds=10.0)
# For triggers and reconciliation, which may list for a minute.
BACKGROUND = Bulkhead("storage", threads=8, limit_seconds=120.0)
AZURE_ML = Bulkhead("Azure ML", threads=6, limit_seconds=45.0)
# A search of a queue takes up to 30 s. A round of reconciliation reads six queues at once.
SERVICE_BUS = Bulkhead("Service Bus", threads=12, limit_seconds=45.0)
# Each open page polls: a search has its own threads. A peek takes a second.
PEEKS = Bulkhead("Service Bus", threads=6, limit_seconds=8.0)
# For calls in threads of the two above, and in those of activities.
SENDING = Bulkhead("Service Bus", threads=8, limit_seconds=30.0)
# The limit of a part of an answer, without which the rest is shown.
PART_SECONDS = 10.0


class BackgroundThread:
    """Runs jobs one after another; the thread starts with the first job.

    The process can end at any time and lose its jobs, so a job must be recorded elsewhere, to be
    done later.
    """

    def __init__(self, limit_jobs: int = LIMIT_JOBS) -> None:
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(limit_jobs)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job. Return False, without queueing it, if the queue is full."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            return False
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="background", daemon=True)
                self._thread.start()
        return True

    def wait_until_idle(self) -> None:
        """Wait until every submitted job has ended."""
        self._jobs.join()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception as error:  # noqa: BLE001 - the edge of the thread
                # Without the error's text, which can quote a service's response.
                logger.warning("a background job failed: %s", type(error).__name__)
            finally:
                self._jobs.task_done()


def call_with_timeout(seconds: float, function: Callable[[], Result]) -> Result:
    """Call a function, and wait for its result at most `seconds`. Its thread is not stopped.

    The SDKs' timeouts apply to each of many steps: with a broker that accepts connections and never
    answers, the Service Bus SDK gives up only after minutes.

    Raises:
        TookTooLong: there is no result in time.
    """
    future: Future[Result] = Future()
    context = contextvars.copy_context()  # keeps the caller's trace context

    def run() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            future.set_exception(error)

    threading.Thread(target=run, name="bounded call", daemon=True).start()
    done, _ = wait([future], seconds)
    if not done:
        raise TookTooLong(f"no result within {seconds:g} s")
    return future.result()
