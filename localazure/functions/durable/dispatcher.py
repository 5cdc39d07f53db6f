"""Runs the task hub: brings messages, activities and timers to the functions that they are for.

Everything here runs on the event loop and holds nothing that the store could not give back:
`start` rebuilds it. SQLite is never polled. An episode's consequences are handed out only when the
episode is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from localazure.functions import logs
from localazure.functions.durable import decision, episode, history, turns
from localazure.functions.durable.activities import ActivityRunner
from localazure.functions.durable.decision import Decision
from localazure.functions.durable.entities import EntityRunner
from localazure.functions.durable.episode import Effects
from localazure.functions.durable.history import Event
from localazure.functions.durable.instance import FINISHED, Execution, Status
from localazure.functions.durable.invocation import FunctionFailed, Invoke, KnownFunctions
from localazure.functions.durable.live_instances import LiveInstance, LiveInstances
from localazure.functions.durable.mailboxes import Mailboxes
from localazure.functions.durable.options import DurableOptions
from localazure.functions.durable.orchestrator_trigger import OrchestratorTrigger
from localazure.functions.durable.records import Message, Turn
from localazure.functions.durable.store import Store
from localazure.functions.durable.timers import TimerQueue
from localazure.functions.durable.versioning import FailureStrategy, accepts
from localazure.functions.durable.work_queue import WorkQueue

_logger = logging.getLogger(__name__)

# The wall clock may jump (a laptop wakes up), so that no sleep before a timer is longer than this.
MAX_TIMER_SLEEP_SECONDS = 60.0

Clock = Callable[[], datetime]


class Dispatcher:
    """The engine of one task hub.

    Args:
        store: where everything is kept.
        invoke: runs a function of the app.
        known: the functions that the app registered.
        options: limits and versions.
        clock: the current time, UTC.
    """

    def __init__(
        self,
        *,
        store: Store,
        invoke: Invoke,
        known: KnownFunctions,
        options: DurableOptions,
        clock: Clock,
    ) -> None:
        self._store = store
        self._invoke = invoke
        self._known = known
        self._options = options
        self._clock = clock
        self._mail = Mailboxes()
        self._live = LiveInstances(store)
        self._timers = TimerQueue()
        self._alarm: asyncio.TimerHandle | None = None
        self._orchestrations = WorkQueue[str](
            "orchestration", options.max_concurrent_orchestrator_functions, self._run_episode
        )
        self._activities = ActivityRunner(
            store=store,
            invoke=invoke,
            known=known,
            options=options,
            deliver=self.deliver,
            clock=clock,
        )
        self._entities = EntityRunner(
            store=store,
            invoke=invoke,
            known=known,
            mail=self._mail,
            deliver=self.deliver,
            clock=clock,
            batch_size=options.max_entity_operation_batch_size,
        )
        self._entity_queue = WorkQueue[str](
            "entity", options.max_concurrent_entity_functions, self._entities.run_batch
        )

    def start(self) -> None:
        """Take up whatever the store says is not finished."""
        for timer in self._store.timers():
            self._timers.add(timer)
        for activity in self._store.activities():
            self._activities.add(activity)
        for instance_id in self._store.to_start():
            self.wake(instance_id)
        for message in self._store.inbox():
            self.deliver(message)
        self.fire_timers()

    async def stop(self, drain_seconds: float) -> None:
        """Let what runs finish for so long; whatever is left will be taken up by the next start."""
        parts = (self._orchestrations, self._activities, self._entity_queue)
        await asyncio.gather(*(part.stop(drain_seconds) for part in parts))
        if self._alarm is not None:
            self._alarm.cancel()

    def deliver(self, message: Message) -> None:
        """Bring a message that is durable, or about to be, to its receiver."""
        self._mail.put(message)
        self.wake(message.target)

    def wake(self, target: str) -> None:
        """Have an instance or entity look at what waits for it."""
        queue = self._entity_queue if target.startswith("@") else self._orchestrations
        queue.request(target)

    def forget(self, instance_id: str) -> None:
        """Read an instance anew: its history was rewritten."""
        self._live.drop(instance_id)

    # --- timers --------------------------------------------------------------------------------

    def fire_timers(self) -> None:
        """Fire what is due, and set the alarm for what is not."""
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
        live = self._live.load(instance_id)
        if live is None:
            self._mail.clear(instance_id)
            return
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
        try:
            effects = await self._effects(live, [message.event for message in consumed])
            if effects is None:
                return
            await self._commit(live, consumed, effects)
        except BaseException:
            self._live.drop(instance_id)  # the store decides what is true
            raise
        if self._mail.of(instance_id):
            self.wake(instance_id)

    def _current_mail(self, live: LiveInstance) -> list[Message]:
        """Messages of the current execution; timers of an earlier one are dropped on the way."""
        execution = live.instance.execution
        waiting = self._mail.of(execution.instance_id)
        stale = [
            message
            for message in waiting
            if message.execution_id not in (None, execution.execution_id)
        ]
        if stale:
            self._mail.remove(execution.instance_id, stale)
        return list(self._mail.of(execution.instance_id))

    async def _effects(self, live: LiveInstance, events: list[Event]) -> Effects | None:
        """What the next episode changes; None when this host does not take the instance."""
        instance, at = live.instance, self._now()
        execution = instance.execution
        if events and events[0]["EventType"] in episode.CONTROL_EVENTS:
            return episode.control(execution, at, started=instance.started, message=events[0])
        arrived = episode.begin(execution, at, started=instance.started, messages=events)
        if not accepts(
            self._options.default_version, execution.version, self._options.version_match_strategy
        ):
            return self._refuse_version(execution, arrived)
        name = self._known.resolve("orchestrator", execution.name)
        if name is None:
            error = self._known.missing("orchestrator", execution.name)
            return episode.fail(
                execution, arrived, f"Orchestrator function '{execution.name}' failed: {error}"
            )
        with logs.working_for(execution.instance_id):
            answer = await self._ask(
                name,
                OrchestratorTrigger(
                    execution=execution, past=live.events, arrived=arrived, memo=live.memo
                ),
            )
        return episode.conclude(
            execution,
            live.events,
            arrived,
            answer,
            known=self._known,
            default_version=self._options.default_version,
            cursor=live.cursor,
        )

    async def _ask(self, name: str, trigger: OrchestratorTrigger) -> Decision:
        try:
            return decision.from_answer(await self._invoke(name, trigger))
        except FunctionFailed as failure:
            return decision.from_failure(failure)

    def _refuse_version(self, execution: Execution, arrived: list[Event]) -> Effects | None:
        message = (
            f"instance {execution.instance_id} has version {execution.version!r}, which a host of "
            f"version {self._options.default_version!r} does not run "
            f"(versionMatchStrategy {self._options.version_match_strategy})"
        )
        if self._options.version_failure_strategy is FailureStrategy.FAIL:
            return episode.fail(
                execution,
                arrived,
                f"Orchestrator function '{execution.name}' failed: VersionMismatch: {message}",
            )
        _logger.warning("%s: it waits for one that does", message)
        return None

    async def _commit(self, live: LiveInstance, consumed: list[Message], effects: Effects) -> None:
        execution = live.instance.execution
        turn, after = turns.build(self._store, live, consumed, effects, self._clock())
        delivery = await self._store.commit(turn)
        self._mail.remove(execution.instance_id, consumed)
        if turn.ended:
            self._timers.forget(execution.execution_id)
            self._live.drop(execution.instance_id)
        else:
            self._live.extend(live, after, turn.events, effects.events)
        if effects.status in FINISHED:
            self._mail.clear(execution.instance_id)
            if effects.status is not Status.COMPLETED:  # else none is open
                self._activities.drop(execution.execution_id)
        elif turn.next_execution is not None:
            self.wake(execution.instance_id)
        self._hand_out(turn, delivery.started, delivery.messages)

    def _hand_out(self, turn: Turn, started: list[str], messages: list[Message]) -> None:
        for activity in turn.activities:
            self._activities.add(activity)
        for timer in turn.timers:
            self._timers.add(timer)
        if turn.timers:
            self.fire_timers()
        for instance_id in started:
            self.wake(instance_id)
        for message in messages:
            self.deliver(message)

    def _now(self) -> str:
        return history.timestamp(self._clock())
