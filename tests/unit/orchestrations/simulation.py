"""Durable orchestrations under a virtual clock: enough of the durable context to run ours.

Activities are plain functions on a simulated world that take effect some time after they were
called, as they do in reality. Nothing here sleeps.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.durable_functions import OrchestrationRuntimeStatus

START = datetime(2026, 11, 21, tzinfo=UTC)
Activities = dict[str, Callable[[dict[str, Any]], Any]]


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that only awaits the simulation, which never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine waits for something that is not simulated")


class Task:
    def __init__(self) -> None:
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None
        self.cancelled = False
        self.watchers: list[Callable[[], None]] = []

    def finish(self, result: Any = None, error: Exception | None = None) -> None:
        if self.done or self.cancelled:
            return
        self.done, self.result, self.error = True, result, error
        for watcher in self.watchers:
            watcher()

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Simulation:
    """The clock, the instances, and what is yet to happen."""

    activities: Activities
    latency: Callable[[], float] = lambda: 0.01
    now: datetime = START
    instances: dict[str, Instance] = field(default_factory=dict)
    orchestrators: dict[str, Callable[[Any], Generator[Any, Any, Any]]] = field(
        default_factory=dict
    )
    _agenda: list[tuple[datetime, int, Callable[[], None]]] = field(default_factory=list)
    _ticket: itertools.count[int] = field(default_factory=itertools.count)

    def at(self, when: datetime, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (max(when, self.now), next(self._ticket), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.now + timedelta(seconds=seconds), action)

    def run(self) -> None:
        while self._agenda:
            self.now, _, action = heapq.heappop(self._agenda)
            action()

    def start(self, orchestrator: str, instance: str, given: Any) -> Instance:
        live = self.instances.get(instance)
        if live is not None and live.live:
            raise RuntimeError(f"instance {instance} already exists")
        started = Instance(self, orchestrator, instance, given)
        self.instances[instance] = started
        started.begin(given)
        return started

    # What handlers use of the durable client.

    async def get_status(self, instance: str) -> Instance | None:
        return self.instances.get(instance)

    async def start_new(self, orchestrator: str, instance: str, given: Any) -> str:
        self.start(orchestrator, instance, given)
        return instance

    async def raise_event(self, instance: str, name: str) -> None:
        self.instances[instance].raise_event(name)


class Instance:
    """One orchestration instance, and the context that its generator sees."""

    def __init__(
        self, simulation: Simulation, orchestrator: str, instance: str, given: Any
    ) -> None:
        self.simulation = simulation
        self.orchestrator = orchestrator
        self.instance_id = instance
        self.custom_status: Any = None
        self.output: Any = None
        self.error: Exception | None = None
        self.live = True
        self.generations = 0
        self.statuses: list[Any] = []
        self.on_end: list[Callable[[], None]] = []
        self._given = given
        self._waits: dict[str, list[Task]] = {}
        self._buffer: set[str] = set()
        self._next: tuple[Any] | None = None

    @property
    def runtime_status(self) -> OrchestrationRuntimeStatus:
        if self.live:
            return OrchestrationRuntimeStatus.Running
        if self.error is not None:
            return OrchestrationRuntimeStatus.Failed
        return OrchestrationRuntimeStatus.Completed

    def begin(self, given: Any) -> None:
        self.generations += 1
        self._given, self._next = given, None
        self._waits.clear()
        self._buffer.clear()  # as the real host does
        self._generator = self.simulation.orchestrators[self.orchestrator](self)
        self.simulation.after(self.simulation.latency(), lambda: self._advance(None, None))

    def raise_event(self, name: str) -> None:
        waits = self._waits.get(name, [])
        if waits:
            waits.pop().finish()  # the youngest, as in the SDK
        else:
            self._buffer.add(name)

    def _advance(self, result: Any, error: Exception | None) -> None:
        try:
            task = self._generator.throw(error) if error else self._generator.send(result)
        except StopIteration as stop:
            self._end(stop.value, None)
            return
        except Exception as failure:  # noqa: BLE001 - the instance failed
            self._end(None, failure)
            return

        def resume() -> None:
            self._advance(task.result, task.error)

        if task.done:
            resume()
        else:
            task.watchers.append(resume)

    def _end(self, output: Any, error: Exception | None) -> None:
        if self._next is not None and error is None:
            self.begin(self._next[0])
            return
        self.output, self.error, self.live = output, error, False
        for watcher in self.on_end:
            watcher()

    # The durable context.

    is_replaying = False

    @property
    def current_utc_datetime(self) -> datetime:
        return self.simulation.now

    def get_input(self) -> Any:
        return self._given

    def set_custom_status(self, status: Any) -> None:
        self.custom_status = status
        self.statuses.append(status)

    def continue_as_new(self, given: Any) -> None:
        self._next = (given,)

    def call_activity_with_retry(self, name: str, _retry: Any, given: Any) -> Task:
        task = Task()

        def execute() -> None:
            # It takes effect, and its result arrives some time after that.
            try:
                result = self.simulation.activities[name](given)
            except Exception as error:  # noqa: BLE001 - retries are used up
                outcome = functools.partial(task.finish, error=error)
            else:
                outcome = functools.partial(task.finish, result)
            self.simulation.after(self.simulation.latency(), outcome)

        self.simulation.after(self.simulation.latency(), execute)
        return task

    def call_sub_orchestrator(self, name: str, given: Any, instance: str) -> Task:
        task = Task()
        child = self.simulation.start(name, instance, given)
        child.on_end.append(lambda: task.finish(child.output, child.error))
        return task

    def create_timer(self, until: datetime) -> Task:
        task = Task()
        self.simulation.at(until, task.finish)
        return task

    def wait_for_external_event(self, name: str) -> Task:
        task = Task()
        if name in self._buffer:
            # It stays there: SDK 1.7 gives a buffered event to every later wait again.
            task.finish()
        else:
            self._waits.setdefault(name, []).append(task)
        return task

    def task_any(self, tasks: list[Task]) -> Task:
        either = Task()
        for task in tasks:
            if task.done:
                either.finish(task)
                return either
            task.watchers.append(lambda task=task: either.finish(task))
        return either
