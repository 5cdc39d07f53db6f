"""The Functions host: one process that runs triggers, orchestrators and activities, and can die."""

from __future__ import annotations

import asyncio
import functools
import json
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from azure.core.exceptions import AzureError

from handlers.landing.blob_created import handle_blob_events
from handlers.notify.delivery import handle_delivery
from handlers.operate.job_events import handle_job_events
from handlers.operate.reconciliation.reconciliation import reconcile
from handlers.platform import bulkheads
from handlers.platform.activity_adapter import ActivityFault, Function, bodies, functions
from handlers.platform.clients import Clients
from handlers.rollout.requests import handle_rollout
from handlers.training.retries import handle_retry
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.errors import LandfallError
from tests.simulation.durable_client import DurableClient, DurableClientError
from tests.simulation.fakes.service_bus import Broker, Message, Queue
from tests.simulation.network import Network
from tests.simulation.scheduler import ProcessDied, Scheduler
from tests.simulation.story import EveryActivityTwice, SecondCopy, Story
from tests.simulation.task_hub import ActivityCall, TaskHub

# The host renews the locks of its triggers' messages for so long: host.json.
TRIGGER_LOCK = timedelta(minutes=10)
LOCK_AFTER_DEATH_SECONDS = 60.0
BULKHEADS = [each for each in vars(bulkheads).values() if isinstance(each, bulkheads.Bulkhead)]
"""The threads of a process: a new one has none of those that hang."""
EVENTS_AT_ONCE = 64
RECEIVE_AGAIN_SECONDS = 30.0
# Errors that a handler may raise when a service fails; every other one is a mistake.
EXPECTED = (AzureError, OSError, LandfallError, DurableClientError)


class Host:
    """Host and worker.

    Args:
        scheduler: the clock.
        network: what goes wrong.
        hub: the task hub.
        broker: the queues that triggers listen to.
        story: for its second copies of activities.
        pipelines: by name.
        make_clients: new clients for a new process.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        hub: TaskHub,
        broker: Broker,
        story: Story,
        pipelines: dict[str, Pipeline],
        make_clients: Callable[[], Clients],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._hub = hub
        self._broker = broker
        self._second_copies = story.nth(SecondCopy)
        self.copied: list[tuple[float, str]] = []
        """When a second copy of an activity began, and the activity's name."""
        self._runs_twice = any(isinstance(item, EveryActivityTwice) for item in story.items)
        self._make_clients = make_clients
        self._functions: dict[str, Function] = {}
        self._activities = 0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._locked: list[tuple[Queue, Message]] = []
        self._listening: set[str] = set()
        self._reconciles = False
        self.pipelines = pipelines
        self.clients = make_clients()
        self.starter: Any = DurableClient(hub, network)
        self.is_up = False
        self.downtime: list[tuple[float, float]] = []
        self.rounds: list[list[float | None]] = []
        """Begin and end of each round of reconciliation; None: it has not ended."""
        self.mistakes: list[str] = []
        """Exceptions that no service explains, with their tracebacks."""
        self.on_activity_ended: Callable[[ActivityCall], None] = lambda _: None
        """Called after an execution of an activity returned or raised."""
        self.on_reconciled: Callable[[], None] = lambda: None
        """Called at the end of a round of reconciliation."""
        hub.run_activity = self._run_activity
        broker.on_available = self._listen
        network.crash = self.die

    def start(self) -> None:
        """A new process comes up."""
        self.clients = self._make_clients()
        for bulkhead in BULKHEADS:
            vars(bulkhead).update(_threads=0, _queue=deque(), _abandoned=set())
        bodies()  # loaded before the clock is a virtual one
        self._functions = {each.__name__: each for each in functions(self.clients)}
        self.is_up = True
        self._hub.come_up()
        for queue in self._triggers():
            self._listen(queue)

    def die(self, down_seconds: float) -> None:
        """The process dies at once: its memory is lost, its locks expire, and it sends nothing."""
        if not self.is_up:
            return
        self.is_up = False
        now = self._scheduler.time()
        self.downtime.append((now, now + down_seconds))
        self._hub.go_down()
        for task in list(self._tasks):
            task.cancel()
        self._tasks.clear()
        self._listening.clear()
        self._reconciles = False
        for queue, message in self._locked:
            if self._broker.holds_lock(queue, message):
                lock = timedelta(seconds=LOCK_AFTER_DEATH_SECONDS)
                self._broker.lock(queue, message, lock)
        self._locked.clear()
        self._scheduler.kill_threads()
        self._scheduler.after(down_seconds, self.start)

    def run(
        self, work: Coroutine[Any, Any, Any], then: Callable[[bool], None] = lambda _: None
    ) -> None:
        """Run a trigger's function; `then` learns whether it returned."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - the host's edge
                self.note(error)
                then(False)  # noqa: FBT003 - a callback
            else:
                then(True)  # noqa: FBT003 - a callback

        task: asyncio.Task[None] = self._scheduler.create_task(guarded())
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._tasks.pop(task, None))
        # A task that is cancelled before its first step has not begun to await it.
        task.add_done_callback(lambda _: work.close())

    def note(self, error: BaseException | None) -> None:
        """Keep an exception that no service explains."""
        if error is not None and not isinstance(error, EXPECTED):
            self.mistakes.append("".join(traceback.format_exception(error)))

    def reconcile(self) -> None:
        """The timer is due."""
        if self.is_up and not self._reconciles:
            self._reconciles = True
            self.rounds.append([self._scheduler.time(), None])
            self.run(self._reconcile(), self._reconciled)

    async def _reconcile(self) -> None:
        scheduler = self._scheduler
        await reconcile(
            self.clients,
            self.pipelines,
            self.starter,
            now=scheduler.now,
            monotonic=scheduler.time,
        )

    def _reconciled(self, _: bool) -> None:  # noqa: FBT001 - a callback
        self._reconciles = False
        self.rounds[-1][1] = self._scheduler.time()
        self.on_reconciled()

    # --- activities ------------------------------------------------------------------------------

    def _run_activity(self, call: ActivityCall) -> None:
        self._activities += 1
        execute = functools.partial(self._execute, call, self._functions[call.name])
        self._scheduler.spawn(execute)
        copy = self._second_copies.get(self._activities)

        def again() -> None:
            if self.is_up:
                self.copied.append((self._scheduler.time(), call.name))
                self._scheduler.spawn(execute)

        if copy is not None:
            self._scheduler.after(copy.delay, again)

    def _execute(self, call: ActivityCall, function: Function) -> None:
        try:
            result = function(json.loads(call.input_json))
            if self._runs_twice:
                result = function(json.loads(call.input_json))
        except ActivityFault as fault:
            self.note(fault.__cause__)
            self._hub.fail(call, fault)
        except ProcessDied:
            raise
        except Exception as error:  # noqa: BLE001 - the host's edge
            self.note(error)
            self._hub.fail(call, error)
        else:
            self._hub.complete(call, result)
        self.on_activity_ended(call)

    # --- queues ----------------------------------------------------------------------------------

    def _triggers(self) -> dict[str, Callable[[list[Message]], Coroutine[Any, Any, Any]]]:
        return {
            "blob-events": functools.partial(self._on_events, handle_blob_events),
            "job-events": functools.partial(self._on_events, handle_job_events),
            "retries": self._on_retry,
            "rollouts": self._on_rollout,
            "notifications": self._deliver_notification,
        }

    async def _on_events(self, handle: Callable[..., Any], messages: list[Message]) -> None:
        now = self._scheduler.now
        await handle(self.clients, self.pipelines, self.starter, messages, now=now)

    async def _on_retry(self, messages: list[Message]) -> None:
        await handle_retry(self.clients, self.starter, messages[0].get_body())

    async def _on_rollout(self, messages: list[Message]) -> None:
        body, now = messages[0].get_body(), self._scheduler.now
        await handle_rollout(self.clients, self.starter, body, now=now)

    async def _deliver_notification(self, messages: list[Message]) -> None:
        body = messages[0].get_body()
        deliver = functools.partial(handle_delivery, self.clients, body, now=self._scheduler.now)
        await asyncio.to_thread(deliver)

    def _listen(self, queue: str) -> None:
        if self.is_up and queue in self._triggers() and queue not in self._listening:
            self._listening.add(queue)
            self._scheduler.after(self._network.latency(), functools.partial(self._receive, queue))

    def _receive(self, name: str) -> None:
        if not self.is_up or name not in self._listening:
            return
        self._listening.discard(name)
        if self._network.is_out("service_bus", self._scheduler.time()):
            self._scheduler.after(RECEIVE_AGAIN_SECONDS, functools.partial(self._listen, name))
            return
        queue = self._broker.queue(name)
        count = EVENTS_AT_ONCE if name.endswith("-events") else 8
        messages = self._broker.receive(queue, count, lock=TRIGGER_LOCK)
        groups = [messages] if name.endswith("-events") else [[each] for each in messages]
        for group in groups:
            if group:
                self._locked += [(queue, message) for message in group]
                self.run(
                    self._triggers()[name](group), functools.partial(self._settle, queue, group)
                )

    def _settle(self, queue: Queue, messages: list[Message], succeeded: bool) -> None:  # noqa: FBT001 - a callback
        for message in messages:
            self._locked.remove((queue, message))
            if not self._broker.holds_lock(queue, message):
                continue
            if self._network.is_out("service_bus", self._scheduler.time()):
                continue  # no reply is sent: the lock expires
            if succeeded:
                self._broker.complete(queue, message)
            else:
                self._broker.abandon(queue, message)
