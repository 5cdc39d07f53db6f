"""Runs the task hub: dispatches messages, activities and timers to their functions.

Everything here runs on the event loop. All state in memory can be rebuilt from the store, by
`start`. SQLite is never polled.

An episode is submitted to the store, and its effects within the instance start at once: its
activities and timers, and the next episode. Transactions become durable in the order of submission,
so the store is always in a state that a slower host could have reached. All effects outside the
instance (messages, children, responses to clients) wait until the episode is durable. If a
transaction fails, all later ones fail with it, everything in memory is discarded, and the store is
reloaded (localazure/docs/durable-engine.md).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from dataclasses import replace
from functools import partial

from localazure.functions import logs
from localazure.functions.durable.engine import episode, history
from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import EventType
from localazure.functions.durable.engine.instance import FINISHED, Execution, Instance, Status
from localazure.functions.durable.runtime import episode_commit, work_queue
from localazure.functions.durable.runtime.activities import ActivityRunner
from localazure.functions.durable.runtime.entity_runner import EntityRunner
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.inboxes import Inboxes
from localazure.functions.durable.runtime.instance_cache import CachedInstance, InstanceCache
from localazure.functions.durable.runtime.timers import TimerQueue
from localazure.functions.durable.runtime.work_queue import WorkQueue
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.records import Delivery, EpisodeCommit, Message, Rewrite
from localazure.functions.durable.store.store import Store

_logger = logging.getLogger(__name__)

# The wall clock may jump (a laptop wakes up), so no sleep before a timer is longer than this.
MAX_TIMER_SLEEP_SECONDS = 60.0

# A replay of more events than this takes longer than a commit (about 5 us per event; 0.3 ms). Then
# messages are batched while a commit is pending, and, while activities run, for as long as the last
# replay took. Otherwise a fan-out would be replayed for each activity that ends.
SHORT_HISTORY_EVENTS = 64


class Dispatcher:
    """The engine of one task hub.

    Args:
        settings: its settings and clock.
        store: the task hub's store.

    Attributes:
        worker: runs the code.
        mail: the messages that wait.
        completion_waiters: tasks that wait until an instance's status has changed.
        activities: the scheduled activities.
    """

    def __init__(self, settings: HubSettings, store: Store, worker: Worker) -> None:
        self._store = store
        self._clock = settings.clock
        self.worker = worker
        self.mail = Inboxes()
        self._live = InstanceCache(store)
        self.completion_waiters = CompletionWaiters()
        self._timers = TimerQueue()
        self._alarm: asyncio.TimerHandle | None = None
        self._reload: asyncio.TimerHandle | None = None  # set: the store must be reloaded first
        store.on_failure = self._on_failure
        self._orchestrations = WorkQueue[str](
            "orchestration",
            settings.options.max_concurrent_orchestrator_functions,
            self._run_episode,
        )
        self.activities = ActivityRunner(settings, store, worker, self.deliver)
        self._entities = EntityRunner(
            settings=settings,
            worker=worker,
            store=store,
            mail=self.mail,
            deliver=self._deliver_all,
        )

    def start(self) -> None:
        """Load all unfinished work from the store and start it."""
        for timer in self._store.timers():
            self._timers.add(timer)
        self.activities.take_up(self._store.activities())
        for instance_id in self._store.to_start():
            self.wake(instance_id)
        for message in self._store.inbox():
            self.deliver(message)
        self.fire_timers()

    async def stop(self, drain_seconds: float) -> None:
        """Wait up to `drain_seconds` for running work. The next start continues the rest."""
        self._store.on_failure = lambda _: None  # the next start reloads the store
        parts = (self._orchestrations, self.activities, self._entities.queue)
        await asyncio.gather(*(part.stop(drain_seconds) for part in parts))
        for handle in (self._alarm, self._reload):
            if handle is not None:
                handle.cancel()
        for target in self.mail.targets():
            self._record_ends(target)

    def begin(self, execution: Execution) -> None:
        """Run an instance whose creation is durable."""
        self._live.begin(Instance.created(execution))
        self.wake(execution.instance_id)

    def deliver(self, message: Message) -> None:
        """Deliver a message that is durable, or whose timer or activity is durable."""
        self.mail.put(message)
        self.wake(message.target)
        if message.event["EventType"] == EventType.EXECUTION_TERMINATED:
            self.worker.interrupt(message.target)

    def wake(self, target: str) -> None:
        """Request a run of an instance or entity."""
        queue = self._entities.queue if target.startswith("@") else self._orchestrations
        queue.request(target)

    def go_on(self, rewritten: Rewrite) -> None:
        """Reload an instance whose history was rewritten, and start its open steps."""
        self._live.drop(rewritten.instance_id)
        for activity in rewritten.activities:
            self.activities.add(activity)
        for timer in rewritten.timers:
            self._timers.add(timer)
        self.fire_timers()
        for message in rewritten.messages:
            self.deliver(message)

    # --- failures ------------------------------------------------------------------------------

    def _on_failure(self, error: BaseException) -> None:
        if self._reload is not None:
            return
        _logger.error(
            "the task hub cannot be written to: reloading it in %g s",
            work_queue.RETRY_SECONDS,
            exc_info=error,
        )
        self._reload_later()

    def _reload_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._reload = loop.call_later(work_queue.RETRY_SECONDS, self._read_anew)

    def _read_anew(self) -> None:
        self.mail.reset()
        self._live.reset()
        self._timers = TimerQueue()
        self._store.renew()
        try:
            self.start()
        except sqlite3.Error:
            _logger.exception("the task hub cannot be read either")
            self._reload_later()
        else:
            self._reload = None

    # --- timers --------------------------------------------------------------------------------

    def fire_timers(self) -> None:
        """Fire the timers that are due, and schedule the next call for the others."""
        now = self._clock()
        for timer in self._timers.pop_due(now):
            fired = history.timer_fired(history.timestamp(now), timer.event_id, timer.fire_at)
            self.deliver(
                Message(target=timer.instance_id, execution_id=timer.execution_id, event=fired)
            )
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self._timers.next_due()
        if due is not None:
            delay_seconds = min((due - now).total_seconds(), MAX_TIMER_SLEEP_SECONDS)
            self._alarm = asyncio.get_running_loop().call_later(delay_seconds, self.fire_timers)

    # --- orchestrations ------------------------------------------------------------------------

    async def _run_episode(self, instance_id: str) -> None:
        if self._reload is not None:
            return  # the reload wakes the instance
        live = self._live.load(instance_id)
        if live is None:
            self._record_ends(instance_id)  # of activities that nobody awaits
            self.mail.clear(instance_id)
            return
        if not live.instance.started and self._starts_later(live.instance.execution):
            return
        if len(live.events) > SHORT_HISTORY_EVENTS and self._gathers(live):
            return
        began = time.monotonic()
        live.is_running = True
        try:
            await self._run_live(live)
        except BaseException:
            live.replay_anew()
            raise
        finally:
            live.is_running = False
            self._record_ends(instance_id)
            ended = time.monotonic()
            live.replay_again_at = ended + (ended - began)

    def _starts_later(self, execution: Execution) -> bool:
        """Whether an instance was scheduled for a later time; if so, arrange its run.

        A termination ends it at once.
        """
        instance_id = execution.instance_id
        waiting = (message.event["EventType"] for message in self.mail.of(instance_id))
        if execution.opening_json is None or EventType.EXECUTION_TERMINATED in waiting:
            return False
        at = json.loads(execution.opening_json).get("ScheduledStartTimestamp")
        left_seconds = (history.parse_timestamp(at) - self._clock()).total_seconds() if at else 0
        if left_seconds > 0:
            self._orchestrations.request_later(
                instance_id, min(left_seconds, MAX_TIMER_SLEEP_SECONDS)
            )
        return left_seconds > 0

    def _gathers(self, live: CachedInstance) -> bool:
        """Whether to delay a long replay until more messages have arrived; if so, schedule it."""
        if live.pending:
            return True  # `_on_durable` wakes the instance
        execution = live.instance.execution
        left_seconds = live.replay_again_at - time.monotonic()
        if left_seconds <= 0 or not self.activities.has_scheduled(execution.execution_id):
            return False
        self._orchestrations.request_later(execution.instance_id, left_seconds)
        return True

    async def _run_live(self, live: CachedInstance) -> None:
        messages = self._current_mail(live)
        instance = live.instance
        batch = episode.next_batch(
            [message.event for message in messages],
            started=instance.started,
            suspended=instance.status is Status.SUSPENDED,
        )
        consumed = [messages[index] for index in batch]
        if instance.started and not consumed:
            return
        events = [message.event for message in consumed]
        if live.pending and events and events[0]["EventType"] == EventType.EXECUTION_TERMINATED:
            return  # its children are not in the store yet; `_on_durable` wakes the instance
        generation = self._store.generation
        effects = await self.worker.run_episode(live, events)
        if effects is None or generation != self._store.generation:
            return
        self._commit(live, consumed, effects)
        instance_id = instance.execution.instance_id
        if self.mail.of(instance_id):
            self.wake(instance_id)

    def _record_ends(self, instance_id: str) -> None:
        """Record the results of activities that no episode has consumed yet."""
        for message in list(self.mail.of(instance_id)):
            event = message.event
            if message.sequence is None and event["EventType"] != EventType.TIMER_FIRED:
                recorded = self._store.message(instance_id, event, message.execution_id)
                self.mail.replace(message, recorded)
                future = self._store.complete_activity(event["TaskScheduledId"], recorded)
                future.add_done_callback(partial(self._on_recorded, message))

    def _on_recorded(self, message: Message, future: asyncio.Future[bool]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.activities.settle([message])

    def _current_mail(self, live: CachedInstance) -> list[Message]:
        """Return the messages of the current execution; drop those of earlier ones."""
        execution = live.instance.execution
        instance_id, current = execution.instance_id, (None, execution.execution_id)
        if any(one.execution_id not in current for one in self.mail.of(instance_id)):
            self._record_ends(instance_id)  # an activity may have outlived its execution
            stale = [one for one in self.mail.of(instance_id) if one.execution_id not in current]
            self.mail.remove(instance_id, stale)
        return list(self.mail.of(instance_id))

    def _commit(self, live: CachedInstance, consumed: list[Message], effects: Effects) -> None:
        """Submit the episode's transaction, and continue as if it were durable."""
        execution = live.instance.execution
        turn, after = episode_commit.build(self._store, live, consumed, effects, self._clock())
        # Others wait for an instance's end, and a long history waits for each of its commits.
        is_awaited = turn.ended or turn.children or turn.messages
        is_long = len(live.events) > SHORT_HISTORY_EVENTS
        future = self._store.commit(turn, is_patient=not is_awaited and not is_long)
        future.add_done_callback(partial(self._on_durable, self._store.generation, live, turn))
        self.mail.remove(execution.instance_id, consumed)
        if turn.ended:
            self._timers.forget(execution.execution_id)
            self._record_ends(execution.instance_id)
            if not turn.leaves_activities:
                self.activities.drop(execution.execution_id)
        if turn.next_execution is None:
            self._live.extend(live, after, turn.events, effects.events)
        else:
            self._live.renew(live, replace(after, execution=turn.next_execution))
            self.wake(execution.instance_id)
        if effects.status in FINISHED:
            self.mail.clear(execution.instance_id)
        if effects.failure is not None:
            with logs.working_for(execution.instance_id):
                _logger.error("%s", effects.failure)
        for activity in turn.activities:
            self.activities.add(activity)
        for timer in turn.timers:
            self._timers.add(timer)
        if turn.timers:
            self.fire_timers()

    def _on_durable(
        self,
        generation: int,
        live: CachedInstance,
        turn: EpisodeCommit,
        future: asyncio.Future[Delivery],
    ) -> None:
        if future.cancelled() or future.exception() is not None:
            return  # `_on_failure` handles it
        delivery = future.result()
        self.activities.settle(turn.consumed)
        if turn.ended:
            self.activities.forget(turn.execution.execution_id)
        if turn.instance is not None:
            self.completion_waiters.notify(turn.execution.instance_id)
        if generation == self._store.generation:
            self._live.settle(live)
        if self.mail.of(turn.execution.instance_id):
            self.wake(turn.execution.instance_id)  # to process messages that waited for this commit
        self._deliver_all(delivery)

    def _deliver_all(self, delivery: Delivery) -> None:
        for instance_id in delivery.started:
            self.wake(instance_id)
        for message in delivery.messages:
            self.deliver(message)


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

    def notify(self, instance_id: str) -> None:
        """Wake the waiters of an instance whose change is durable."""
        for future in self._waiting.pop(instance_id, ()):
            if not future.done():
                future.set_result(None)
