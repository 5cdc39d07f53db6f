"""The namespace at work: decisions of `queues`, made durable by `store`, handed to consumers.

Every decision is durable before anyone is told: whoever sends, settles, schedules or cancels is
answered after the commit, and a message appears where it went after the commit. If the commit
fails, the message is back where it was, unlocked, and the caller hears the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from localazure.servicebus import contents, store
from localazure.servicebus.config import NamespaceConfig, QueueConfig
from localazure.servicebus.contents import SentMessage
from localazure.servicebus.entities import Consumer, Entity, Namespace, SubQueue, paths
from localazure.servicebus.filters import MessageFacts
from localazure.servicebus.queues import (
    Event,
    Lock,
    MessageNotFoundError,
    Place,
    Transition,
)
from localazure.servicebus.store import Destination, Placed, StoredMessage, Submission
from localazure.sqlite.database import Database

logger = logging.getLogger(__name__)

Clock = Callable[[], int]
"""Milliseconds since the Unix epoch."""

# How often what duplicate detection needs no more is deleted.
HOUSEKEEPING_INTERVAL_S = 60.0
# What time decides is committed in portions, so that a burst of expiries does not fill memory.
MAX_TRANSITIONS_AT_ONCE = 500
# After a failed commit that nobody waits for: no hot loop on a full disk.
RETRY_DELAY_S = 1.0


def system_clock() -> int:
    """The time of this machine."""
    return time.time_ns() // 1_000_000


class Broker:
    """All entities with their messages and consumers. Lives on one event loop."""

    def __init__(self, namespace: Namespace, database: Database, clock: Clock) -> None:
        self.namespace = namespace
        self.clock = clock
        self._database = database
        self._by_number = {entity.number: entity for entity in namespace.entities}
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None

    @classmethod
    async def start(
        cls, config: NamespaceConfig, database: Database, clock: Clock = system_clock
    ) -> Broker:
        """Load every configured entity with its messages; all are unlocked."""
        configured = paths(config)
        numbers = await database.write(
            lambda connection: {path: store.entity_id(connection, path) for path in configured}
        )
        for path, count in store.orphans(database, list(numbers.values())):
            logger.warning("%s holds %d messages and is not configured any more", path, count)
        broker = cls(Namespace(config, numbers), database, clock)
        for entity in broker.namespace.entities:
            for sub_queue in entity.sub_queues():
                for entry in store.entries(
                    database, entity.number, is_dead_letter=sub_queue.is_dead_letter
                ):
                    sub_queue.queue.add(entry)
        broker.advance()
        broker._spawn(broker._keep_house())
        return broker

    async def stop(self) -> None:
        """Let what is under way become durable, and decide nothing more."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = 0  # nothing is earlier: no new alarm
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- sending ----------------------------------------------------------------------------------

    async def send(self, entity: Entity, messages: Sequence[SentMessage]) -> list[int]:
        """Accept messages, all or none; their sequence numbers once they are durable."""
        config = entity.config
        submissions = [
            Submission(
                entity=entity.number,
                message_id=message.message_id,
                ttl_ms=message.ttl_ms,
                due_ms=message.due_ms,
                annotations=message.annotations,
                bare=message.bare,
                duplicate_window_ms=config.duplicate_window_ms,
                destinations=self.namespace.route(
                    entity, MessageFacts(message.properties, message.bare)
                ),
            )
            for message in messages
        ]
        now_ms = self.clock()
        receipts = await self._database.write(
            lambda connection: store.submit(connection, submissions, now_ms)
        )
        self._place([placed for receipt in receipts for placed in receipt.placed])
        return [receipt.sequence_number for receipt in receipts]

    async def cancel(self, entity: Entity, sequence_numbers: Sequence[int]) -> None:
        """Take back scheduled messages, all or none.

        Raises:
            MessageNotFoundError: one of them is not scheduled, or no more.
        """
        queue = entity.active.queue
        for number in sequence_numbers:
            if not queue.is_scheduled(number):
                raise MessageNotFoundError(f"no message {number} is scheduled in {entity.path}")
        transitions = [queue.cancel(number) for number in dict.fromkeys(sequence_numbers)]
        await asyncio.gather(*(self._commit(entity.active, item) for item in transitions))

    # --- receiving --------------------------------------------------------------------------------

    def attach(self, sub_queue: SubQueue, consumer: Consumer) -> None:
        """From now on the consumer gets messages for its credit, in turn with others."""
        sub_queue.consumers.append(consumer)

    def detach(self, sub_queue: SubQueue, consumer: Consumer) -> None:
        """The consumer gets nothing more. Its locks last until they expire."""
        if consumer in sub_queue.consumers:
            sub_queue.consumers.remove(consumer)

    def pump(self, sub_queue: SubQueue) -> None:
        """Hand out messages until there is none, or no credit."""
        now_ms = self.clock()
        queue = sub_queue.queue
        while (consumer := sub_queue.next_consumer()) is not None:
            if consumer.takes:
                transition = queue.take_next(now_ms)
                if transition is None:
                    break
                consumer.reserve()
                self._spawn(self._deliver_taken(sub_queue, consumer, transition))
                continue
            lock = queue.lock_next(now_ms)
            if lock is None:
                break
            consumer.deliver_locked(lock.token, self._render_locked(sub_queue, lock))
        self._set_alarm(queue.next_due_ms())

    async def receive_deferred(
        self, sub_queue: SubQueue, sequence_numbers: Sequence[int], *, takes: bool
    ) -> list[tuple[uuid.UUID | None, bytes]]:
        """Deferred messages by number, all or none: lock token (None if taken) and payload.

        Raises:
            MessageNotFoundError: one of them is not deferred, or locked.
        """
        now_ms, queue = self.clock(), sub_queue.queue
        numbers = list(dict.fromkeys(sequence_numbers))
        for number in numbers:
            if not queue.has_deferred(number, now_ms):
                raise MessageNotFoundError(f"no message {number} is deferred and unlocked")
        if not takes:
            locks = [queue.lock_deferred(number, now_ms) for number in numbers]
            self._set_alarm(queue.next_due_ms())
            return [(lock.token, self._render_locked(sub_queue, lock)) for lock in locks]
        transitions = [queue.take_deferred(number, now_ms) for number in numbers]
        payloads = [
            contents.render(self._read(sub_queue, item.before.sequence_number))
            for item in transitions
        ]
        await asyncio.gather(*(self._commit(sub_queue, item) for item in transitions))
        return [(None, payload) for payload in payloads]

    def peek(self, sub_queue: SubQueue, start: int, count: int) -> list[bytes]:
        """Payloads of messages in any state from a sequence number, in order."""
        found = store.browse(
            self._database,
            sub_queue.entity.number,
            is_dead_letter=sub_queue.is_dead_letter,
            start=start,
            count=count,
        )
        return [contents.render(message) for message in found]

    # --- settling ---------------------------------------------------------------------------------

    async def settle(
        self,
        sub_queue: SubQueue,
        token: uuid.UUID,
        event: Event,
        *,
        reason: str | None = None,
        description: str | None = None,
    ) -> None:
        """Decide on a locked message; returns once that is durable.

        Raises:
            LockLostError: the lock is gone.
        """
        transition = sub_queue.queue.settle(
            token, event, self.clock(), reason=reason, description=description
        )
        await self._commit(sub_queue, transition)

    def renew(self, sub_queue: SubQueue, token: uuid.UUID) -> int:
        """Prolong a lock; until when, in ms.

        Raises:
            LockLostError: the lock is gone.
        """
        return sub_queue.queue.renew(token, self.clock())

    def holds(self, sub_queue: SubQueue, token: uuid.UUID) -> bool:
        """Whether a lock is held."""
        return sub_queue.queue.holds(token, self.clock())

    # --- time -------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Carry out what time has decided by now."""
        self._alarm_ms = None
        now_ms = self.clock()
        for entity in self.namespace.entities:
            for sub_queue in entity.sub_queues():
                transitions = sub_queue.queue.advance(now_ms)
                if transitions:
                    self._spawn(self._carry_out(sub_queue, transitions))
                self._set_alarm(sub_queue.queue.next_due_ms())

    async def _carry_out(self, sub_queue: SubQueue, transitions: list[Transition]) -> None:
        for start in range(0, len(transitions), MAX_TRANSITIONS_AT_ONCE):
            portion = transitions[start : start + MAX_TRANSITIONS_AT_ONCE]
            results = await asyncio.gather(
                *(self._write(sub_queue, item) for item in portion), return_exceptions=True
            )
            failed = [
                item
                for item, result in zip(portion, results, strict=True)
                if isinstance(result, Exception)
            ]
            if failed:
                logger.error(
                    "%s: %d decisions of time could not be written: %s",
                    sub_queue.entity.path,
                    len(failed),
                    results,
                )
                await asyncio.sleep(RETRY_DELAY_S)
                for item in failed:
                    sub_queue.queue.add(item.before)
                self._set_alarm(sub_queue.queue.next_due_ms())

    def _set_alarm(self, due_ms: int | None) -> None:
        if due_ms is None or (self._alarm_ms is not None and self._alarm_ms <= due_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = due_ms
        delay_s = max(0, due_ms - self.clock()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(delay_s, self.advance)

    async def _keep_house(self) -> None:
        while True:
            now_ms = self.clock()
            try:
                await self._database.write(
                    lambda connection, now_ms=now_ms: store.forget_history(connection, now_ms)
                )
            except Exception:
                logger.exception("the history of duplicate detection could not be trimmed")
            await asyncio.sleep(HOUSEKEEPING_INTERVAL_S)

    # --- within -----------------------------------------------------------------------------------

    async def _commit(self, sub_queue: SubQueue, transition: Transition) -> None:
        """Make a decision durable, then put the message where it belongs."""
        try:
            await self._write(sub_queue, transition)
        except Exception:
            sub_queue.queue.add(transition.before)
            self.pump(sub_queue)
            raise

    async def _write(self, sub_queue: SubQueue, transition: Transition) -> None:
        entity = sub_queue.entity
        onward = self._onward(sub_queue, transition)
        if onward is not None:
            destinations, source = onward
            now_ms = self.clock()
            placed = await self._database.write(
                lambda connection: store.move(
                    connection,
                    entity.number,
                    transition,
                    destinations,
                    now_ms,
                    dead_letter_source=source,
                )
            )
            self._place(placed)
            return
        if transition.is_durable:
            await self._database.write(
                lambda connection: store.apply(connection, entity.number, transition)
            )
        if transition.place is Place.GONE:
            return
        goes_to_dead_letters = transition.place is Place.DEAD_LETTERS
        where = entity.dead_letters if goes_to_dead_letters else sub_queue
        where.queue.add(transition.after)
        self.pump(where)

    def _onward(
        self, sub_queue: SubQueue, transition: Transition
    ) -> tuple[tuple[Destination, ...], str | None] | None:
        """Where a message goes that leaves its entity, and as whose dead letter."""
        entity, config = sub_queue.entity, sub_queue.entity.config
        if transition.place is Place.ROUTED:
            target, source = entity, None
        elif (
            transition.place is Place.DEAD_LETTERS
            and isinstance(config, QueueConfig)
            and config.forward_dead_letters_to is not None
            and not sub_queue.is_dead_letter
        ):
            found = self.namespace.find(config.forward_dead_letters_to.lower())
            assert found is not None  # the configuration was checked
            target, source = found, entity.path
        else:
            return None
        stored = self._read(sub_queue, transition.before.sequence_number)
        return self.namespace.route(target, contents.facts(stored)), source

    async def _deliver_taken(
        self, sub_queue: SubQueue, consumer: Consumer, transition: Transition
    ) -> None:
        stored = self._read(sub_queue, transition.before.sequence_number)
        try:
            await self._commit(sub_queue, transition)
        except Exception:
            logger.exception("%s: a message could not be taken out", sub_queue.entity.path)
            await asyncio.sleep(RETRY_DELAY_S)
            consumer.release()
            self.pump(sub_queue)
            return
        consumer.deliver_taken(contents.render(stored))

    def _render_locked(self, sub_queue: SubQueue, lock: Lock) -> bytes:
        stored = self._read(sub_queue, lock.entry.sequence_number)
        return contents.render(stored, locked_until_ms=lock.until_ms)

    def _read(self, sub_queue: SubQueue, sequence_number: int) -> StoredMessage:
        stored = store.message(self._database, sub_queue.entity.number, sequence_number)
        assert stored is not None  # what is in memory was committed
        return stored

    def _place(self, placed: Sequence[Placed]) -> None:
        touched: dict[int, SubQueue] = {}
        for item in placed:
            sub_queue = self._by_number[item.entity].active
            sub_queue.queue.add(item.entry)
            touched[item.entity] = sub_queue
        for sub_queue in touched.values():
            self.pump(sub_queue)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
