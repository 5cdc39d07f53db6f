"""The virtual clock and the one scheduler of a simulation.

Everything that happens is an entry of one agenda, in order of time. Code of three kinds runs on it:

* callbacks (`at`, `after`): the outside world;
* coroutines: triggers are tasks of asyncio, and this is their event loop;
* threads of the host: synchronous code (activities, `asyncio.to_thread`) runs in greenlets, which
  `pause` wherever they call a service. So two copies of one activity interleave at any call.

Nothing waits in real time, and one seed gives one order of events.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import greenlet

from handlers.platform.bulkheads import TookTooLong

START = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
Result = TypeVar("Result")
# A week has some thousands; this many are a loop.
# asyncio's default executor on two cores: min(32, cores + 4).
DEFAULT_THREADS = 6
ACTIONS_LIMIT = 1_000_000


class ProcessDied(BaseException):
    """The host's process died while this code ran: nothing after it happens."""


class Scheduler(asyncio.AbstractEventLoop):
    """The agenda. As an event loop it has what tasks, futures and `to_thread` need of one."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._seconds = self._now_at = 0.0
        self._now = start
        self._agenda: list[tuple[float, int, Callable[[], Any]]] = []
        self._ticket = itertools.count()
        self._main = greenlet.getcurrent()
        self._threads: dict[greenlet.greenlet, None] = {}
        self._killed: set[greenlet.greenlet] = set()
        self._process = 0
        """Counts the deaths of the host."""
        self._default_threads = 0
        """Threads of asyncio's default executor that are at work."""
        self._waiting_for_thread: deque[Callable[[], None]] = deque()
        self.faults: list[dict[str, Any]] = []
        """asyncio's reports of exceptions that were never awaited."""

    # --- the clock and the agenda ----------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual time, UTC."""
        if self._now_at != self._seconds:
            self._now_at, self._now = self._seconds, self._start + timedelta(seconds=self._seconds)
        return self._now

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._seconds

    def at(self, when: datetime, action: Callable[[], Any]) -> None:
        """Call `action` at a moment, or now if that is over."""
        self.after((when - self.now).total_seconds(), action)

    def at_second(self, second: float, action: Callable[[], Any]) -> None:
        """Call `action` at a second since the start, or now if it is past."""
        self.after(second - self._seconds, action)

    def after(self, seconds: float, action: Callable[[], Any]) -> None:
        """Call `action` when so many seconds have passed."""
        due = self._seconds + max(seconds, 0.0)
        heapq.heappush(self._agenda, (due, next(self._ticket), action))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run all entries until the agenda is empty or `until` is true."""
        with self._as_running_loop():
            while self._agenda and not until():
                self._seconds, ticket, action = heapq.heappop(self._agenda)
                if ticket > ACTIONS_LIMIT:
                    raise RuntimeError(f"it does not come to rest: {ACTIONS_LIMIT} actions")
                action()

    @contextmanager
    def _as_running_loop(self) -> Generator[None]:
        # A test may run in another loop's task.
        outer = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        asyncio._set_running_loop(self)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        try:
            yield
        finally:
            asyncio._set_running_loop(outer)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]

    # --- threads ---------------------------------------------------------------------------------

    def spawn(self, function: Callable[[], Any]) -> greenlet.greenlet:
        """Begin a thread of the host; an exception of its function ends the simulation."""

        def run() -> None:
            try:
                function()
            except ProcessDied:
                pass
            finally:
                self._threads.pop(thread, None)
                self._killed.discard(thread)

        thread = greenlet.greenlet(run, parent=self._main)
        self._threads[thread] = None
        self.after(0, functools.partial(self._resume, thread))
        return thread

    def pause(self, seconds: float) -> None:
        """Suspend a thread for some seconds, and continue others.

        Raises:
            ProcessDied: the host died meanwhile.
        """
        self.after(seconds, functools.partial(self._resume, self._thread()))
        self._suspend()

    def call_with_timeout(self, seconds: float, function: Callable[[], Result]) -> Result:
        """As in `handlers.platform.bulkheads`: the call goes on when its time is over."""
        outcome: list[Callable[[], Result]] = []
        waiter = self._thread()
        is_waiting = True

        def run() -> None:
            try:
                value = function()
            except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
                outcome.append(functools.partial(_raise, error))
            else:
                outcome.append(lambda: value)
            if is_waiting:
                self.after(0, functools.partial(self._resume, waiter))

        def time_out() -> None:
            if is_waiting and not outcome:
                self._resume(waiter)

        self.spawn(run)
        self.after(seconds, time_out)
        self._suspend()
        is_waiting = False
        if not outcome:
            raise TookTooLong(f"no result within {seconds:g} s")
        return outcome[0]()

    @property
    def threading(self) -> Any:
        """In the place of the module, for code that starts threads of its own."""
        return SimpleNamespace(Lock=contextlib.nullcontext, Thread=self._new_thread)

    def _new_thread(self, *, target: Callable[[], Any], **_: Any) -> Any:
        return SimpleNamespace(start=lambda: self.spawn(target))

    def wait_for_call(self, calls: Sequence[Future[Any]], seconds: float) -> None:
        """As `concurrent.futures.wait` for one call, in a thread of the host."""
        (call,) = calls
        thread, is_waiting = self._thread(), True

        def go_on(_: Any = None) -> None:
            if is_waiting:
                self._resume(thread)

        if not call.done():
            call.add_done_callback(lambda _: self.after(0, go_on))
            self.after(seconds, go_on)
            self._suspend()
        is_waiting = False

    def kill_threads(self) -> None:
        """End every thread where it waits, as the end of the process does."""
        assert greenlet.getcurrent() is self._main, "a thread cannot end the others itself"
        self._process += 1
        self._default_threads = 0
        self._waiting_for_thread.clear()
        for thread in list(self._threads):
            self._killed.add(thread)
            if thread:  # it has begun
                thread.throw(ProcessDied)
            self._threads.pop(thread, None)

    def _thread(self) -> greenlet.greenlet:
        thread = greenlet.getcurrent()
        assert thread is not self._main, "a blocking call on the event loop"
        return thread

    def _suspend(self) -> None:
        thread = self._thread()
        if thread in self._killed:
            raise ProcessDied
        self._main.switch()
        if thread in self._killed:
            raise ProcessDied

    def _resume(self, thread: greenlet.greenlet) -> None:
        if thread in self._threads and thread not in self._killed:
            thread.switch()

    # --- as an event loop ------------------------------------------------------------------------

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.after(0, functools.partial(_run_handle, handle))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self.after(when - self.time(), functools.partial(_run_handle, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled handle is passed over when it is due."""

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._seconds + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, **options)

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, executor: Any, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        assert executor is None
        future: asyncio.Future[Result] = self.create_future()
        process = self._process

        def run() -> None:
            try:
                value = func(*args)
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(value)
            finally:
                if process == self._process:
                    self._release_thread()

        self._waiting_for_thread.append(run)
        self._start_threads()
        return future

    def _start_threads(self) -> None:
        while self._waiting_for_thread and self._default_threads < DEFAULT_THREADS:
            self._default_threads += 1
            self.spawn(self._waiting_for_thread.popleft())

    def _release_thread(self) -> None:
        self._default_threads -= 1
        self._start_threads()

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(context)


class VirtualBackground:
    """In the place of `BackgroundThread`: runs jobs one after another in a thread of the host."""

    def __init__(self, scheduler: Scheduler, note: Callable[[Exception], None]) -> None:
        self._scheduler = scheduler
        self._note = note
        self._jobs: list[Callable[[], None]] = []
        self._is_running = False

    def submit(self, job: Callable[[], None]) -> bool:
        self._jobs.append(job)
        if not self._is_running:
            self._is_running = True
            self._scheduler.spawn(self._run)
        return True

    def _run(self) -> None:
        while self._jobs:
            try:
                self._jobs.pop(0)()
            except Exception as error:  # noqa: BLE001 - the edge of the thread
                self._note(error)
        self._is_running = False


class VirtualLock:
    """In the place of `threading.Lock`, for threads of a scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            self._scheduler.pause(0.05)
        self._held = True

    def __exit__(self, *details: object) -> None:
        self._held = False


def _run_handle(handle: asyncio.Handle) -> None:
    if not handle.cancelled():
        handle._run()  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType, reportAttributeAccessIssue]


def _raise(error: Exception) -> Any:
    raise error
