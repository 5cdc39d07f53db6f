"""The running namespace: writes transitions of `queues` to `store`, delivers messages.

Every change is durable before it is visible. The broker answers a send, a settlement, a schedule
or a cancellation after the commit, and a message is available at its destination after the commit.
If the commit fails, the message is back in its queue, unlocked, and the caller gets the error.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from localazure.processes.background import cancel
from localazure.servicebus import contents, store
from localazure.servicebus.commits import Clock, Commits
from localazure.servicebus.configuration import NamespaceConfiguration
from localazure.servicebus.credits import Credits, cost_of_sending
from localazure.servicebus.entities import Consumer, Entity, Namespace, SubQueue
from localazure.servicebus.filters import MessageFacts
from localazure.servicebus.queues import (
    Event,
    MessageNotFoundError,
    Transition,
)
from localazure.servicebus.store import (
    SentMessage,
    Submission,
)
from localazure.sqlite.database import Database

logger = logging.getLogger(__name__)

# Interval between deletions of message ids that duplicate detection does not need.
HISTORY_PURGE_INTERVAL_SECONDS = 60.0
# Most timed transitions of one commit: thousands of messages may expire at the same time.
MAX_TRANSITIONS_PER_COMMIT = 500
# Delay after a failed commit of a timed transition, so that a full disk causes no busy loop.
RETRY_DELAY_SECONDS = 1.0
# Messages that a peek reads into memory before it looks at their size.
PEEKED_AT_ONCE = 10


def system_clock() -> int:
    """Return the time of this machine."""
    return time.time_ns() // 1_000_000


class Broker:
    """All entities with their messages and consumers. Used on one event loop only."""

    def __init__(
        self, namespace: Namespace, database: Database, clock: Clock, credits_: Credits
    ) -> None:
        self.namespace = namespace
        self.clock = clock
        self._credits = credits_
        self._database = database
        self._commits = Commits(namespace, database, clock, self.pump)
        self._tasks: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms: int | None = None

    @classmethod
    async def start(
        cls, configuration: NamespaceConfiguration, database: Database, clock: Clock = system_clock
    ) -> Broker:
        """Load every configured entity with its messages; all are unlocked."""
        paths = [path for path, _ in configuration.entities()]
        numbers = await database.write(
            lambda connection: {path: store.entity_id(connection, path) for path in paths}
        )
        for path, count in store.unconfigured_entities(database.read, list(numbers.values())):
            logger.warning("%s holds %d messages and is not configured", path, count)
        namespace = Namespace(configuration, numbers)
        broker = cls(namespace, database, clock, Credits(configuration.sku))
        for entity in broker.namespace.entities:
            for kind, sub_queue in entity.sub_queues.items():
                for entry in store.entries(database.read, entity.number, kind):
                    sub_queue.queue.add(entry)
        for entity in broker.namespace.entities:
            for kind, sub_queue in entity.sub_queues.items():
                # The entity may forward since this start. Nobody could receive them here.
                if entity.forwards(kind):
                    moved = sub_queue.queue.take_available(clock())
                    await asyncio.gather(
                        *(broker._commits.write(sub_queue, item) for item in moved)
                    )
        broker.advance()
        broker._spawn(broker._purge_history())
        return broker

    async def stop(self) -> None:
        """Stop timers and background tasks. Writes that have begun are committed."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = 0  # no time is earlier, so no new alarm is set
        await cancel(*self._tasks)

    # --- sending ----------------------------------------------------------------------------------

    async def send(self, entity: Entity, messages: Sequence[SentMessage]) -> list[int]:
        """Accept all messages or none. Returns their sequence numbers once they are durable.

        Raises:
            ServerBusyError: the namespace has no credits left.
        """
        self._credits.spend(cost_of_sending(entity, len(messages)))
        messages = [contents.ensure_message_id(message) for message in messages]
        submissions = [
            Submission(
                entity=entity.number,
                message=message,
                duplicate_window_ms=entity.configured.properties.duplicate_window_ms,
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
        self._commits.add([item for receipt in receipts for item in receipt.enqueued])
        return [receipt.sequence_number for receipt in receipts]

    async def cancel(self, entity: Entity, sequence_numbers: Sequence[int]) -> None:
        """Cancel all of these scheduled messages or none.

        Raises:
            MessageNotFoundError: a message is not scheduled.
        """
        queue = entity.active.queue
        for number in sequence_numbers:
            if not queue.is_scheduled(number):
                raise MessageNotFoundError(f"no message {number} is scheduled in {entity.path}")
        transitions = [queue.cancel(number) for number in dict.fromkeys(sequence_numbers)]
        await asyncio.gather(*(self._commits.commit(entity.active, item) for item in transitions))

    # --- receiving --------------------------------------------------------------------------------

    def attach(self, sub_queue: SubQueue, consumer: Consumer) -> None:
        """Add a consumer. Consumers with credit get messages round-robin."""
        sub_queue.consumers.append(consumer)

    def detach(self, sub_queue: SubQueue, consumer: Consumer) -> None:
        """Remove a consumer. Its locks last until they expire."""
        if consumer in sub_queue.consumers:
            sub_queue.consumers.remove(consumer)

    def pump(self, sub_queue: SubQueue) -> None:
        """Deliver messages until none is available or no consumer has credit."""
        now_ms = self.clock()
        queue = sub_queue.queue
        while (consumer := sub_queue.next_consumer()) is not None:
            if consumer.receives_and_deletes:
                transition = queue.receive_and_delete_next(now_ms)
                if transition is None:
                    break
                consumer.reserve()
                self._credits.charge(1)
                self._spawn(self._deliver_and_delete(sub_queue, consumer, transition))
                continue
            lock = queue.lock_next(now_ms)
            if lock is None:
                break
            self._credits.charge(1)
            consumer.deliver_locked(lock.token, self._commits.render(sub_queue, lock))
        self._set_alarm(queue.next_due_ms())

    async def receive_deferred(
        self, sub_queue: SubQueue, sequence_numbers: Sequence[int], *, deletes: bool
    ) -> list[tuple[uuid.UUID | None, bytes]]:
        """Receive all of these deferred messages or none.

        Args:
            sub_queue: the messages' sub-queue.
            sequence_numbers: the messages' sequence numbers.
            deletes: whether to delete the messages; otherwise lock them.

        Returns:
            Lock token (None for a deleted message) and payload of each.

        Raises:
            MessageNotFoundError: a message is not deferred, or locked.
            ServerBusyError: the namespace has no credits left.
        """
        self._credits.spend(len(sequence_numbers))
        now_ms, queue = self.clock(), sub_queue.queue
        numbers = list(dict.fromkeys(sequence_numbers))
        for number in numbers:
            if not queue.has_deferred(number, now_ms):
                raise MessageNotFoundError(f"no message {number} is deferred and unlocked")
        if not deletes:
            locks = [queue.lock_deferred(number, now_ms) for number in numbers]
            self._set_alarm(queue.next_due_ms())
            return [(lock.token, self._commits.render(sub_queue, lock)) for lock in locks]
        transitions = [queue.receive_and_delete_deferred(number, now_ms) for number in numbers]
        payloads = [
            contents.render(self._commits.read(sub_queue, item.before.sequence_number))
            for item in transitions
        ]
        await asyncio.gather(*(self._commits.commit(sub_queue, item) for item in transitions))
        return [(None, payload) for payload in payloads]

    def peek(self, sub_queue: SubQueue, start: int, count: int) -> list[bytes]:
        """Return payloads of messages in any state, in order, from sequence number `start` on.

        Together they are no larger than one message of the entity may be, but at least one.

        Raises:
            ServerBusyError: the namespace has no credits left.
        """
        self._credits.spend(1)
        payloads: list[bytes] = []
        left_bytes = sub_queue.entity.message_bytes
        while len(payloads) < count:
            messages = store.peek(
                self._database.read,
                sub_queue.entity.number,
                sub_queue.kind,
                start=start,
                count=min(count - len(payloads), PEEKED_AT_ONCE),
            )
            for message in messages:
                payload = contents.render(message)
                left_bytes -= len(payload)
                if payloads and left_bytes < 0:
                    break
                payloads.append(payload)
                start = message.entry.sequence_number + 1
            if left_bytes < 0 or len(messages) < PEEKED_AT_ONCE:
                break
        self._credits.charge(len(payloads) - 1)
        return payloads

    # --- settling ---------------------------------------------------------------------------------

    async def settle(
        self,
        sub_queue: SubQueue,
        token: uuid.UUID,
        event: Event,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Settle a locked message. Returns once the change is durable.

        Raises:
            LockLostError: the lock expired, or the message is settled.
        """
        transition = sub_queue.queue.settle(token, event, self.clock(), properties)
        await self._commits.commit(sub_queue, transition)

    # --- timers -----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Apply the transitions that are due and set the next alarm."""
        self._alarm_ms = None
        now_ms = self.clock()
        for entity in self.namespace.entities:
            for sub_queue in entity.sub_queues.values():
                transitions = sub_queue.queue.advance(now_ms)
                if transitions:
                    self._spawn(self._apply(sub_queue, transitions))
                self._set_alarm(sub_queue.queue.next_due_ms())

    async def _apply(self, sub_queue: SubQueue, transitions: list[Transition]) -> None:
        for start in range(0, len(transitions), MAX_TRANSITIONS_PER_COMMIT):
            portion = transitions[start : start + MAX_TRANSITIONS_PER_COMMIT]
            results = await asyncio.gather(
                *(self._commits.write(sub_queue, item) for item in portion), return_exceptions=True
            )
            failed = [
                item
                for item, result in zip(portion, results, strict=True)
                if isinstance(result, Exception)
            ]
            if failed:
                logger.error(
                    "%s: %d timed transitions could not be written: %s",
                    sub_queue.entity.path,
                    len(failed),
                    results,
                )
                await asyncio.sleep(RETRY_DELAY_SECONDS)
                for item in failed:
                    sub_queue.queue.add(item.before)
                self._set_alarm(sub_queue.queue.next_due_ms())

    def _set_alarm(self, due_ms: int | None) -> None:
        if due_ms is None or (self._alarm_ms is not None and self._alarm_ms <= due_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = due_ms
        delay_seconds = max(0, due_ms - self.clock()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(delay_seconds, self.advance)

    async def _purge_history(self) -> None:
        while True:
            now_ms = self.clock()
            try:
                await self._database.write(
                    lambda connection, now_ms=now_ms: store.purge_history(connection, now_ms)
                )
            except Exception:
                logger.exception("the history of duplicate detection could not be purged")
            await asyncio.sleep(HISTORY_PURGE_INTERVAL_SECONDS)

    # --- internals --------------------------------------------------------------------------------

    async def _deliver_and_delete(
        self, sub_queue: SubQueue, consumer: Consumer, transition: Transition
    ) -> None:
        stored = self._commits.read(sub_queue, transition.before.sequence_number)
        try:
            await self._commits.commit(sub_queue, transition)
        except Exception:
            logger.exception("%s: a message could not be deleted", sub_queue.entity.path)
            await asyncio.sleep(RETRY_DELAY_SECONDS)
            consumer.release()
            self.pump(sub_queue)
            return
        consumer.deliver_deleted(contents.render(stored))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
