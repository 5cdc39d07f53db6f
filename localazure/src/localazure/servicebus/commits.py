"""Writes transitions of messages, and then puts the messages where they belong.

A transition may move a message to the queues that its entity, or the namespace, forwards to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from localazure.servicebus import contents, store
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.entities import Namespace, SubQueue
from localazure.servicebus.queues import Action, Lock, Transition
from localazure.servicebus.store import Destination, Enqueued, StoredMessage
from localazure.sqlite.database import Database

Clock: TypeAlias = Callable[[], int]
"""Milliseconds since the Unix epoch."""


class Commits:
    """The changes of the messages of a namespace.

    Args:
        namespace: all entities.
        database: keeps the messages.
        clock: milliseconds since the Unix epoch.
        pump: delivers the messages that became available in a queue.
    """

    def __init__(
        self,
        namespace: Namespace,
        database: Database,
        clock: Clock,
        pump: Callable[[SubQueue], None],
    ) -> None:
        self._namespace = namespace
        self._database = database
        self._clock = clock
        self._pump = pump
        self._by_number = {entity.number: entity for entity in namespace.entities}

    async def commit(self, sub_queue: SubQueue, transition: Transition) -> None:
        """Write a transition, then put the message into its queue or its destinations."""
        try:
            await self.write(sub_queue, transition)
        except Exception:
            sub_queue.queue.add(transition.before)
            self._pump(sub_queue)
            raise

    async def write(self, sub_queue: SubQueue, transition: Transition) -> None:
        """As `commit`, but the message stays out of its queue if the commit fails."""
        entity = sub_queue.entity
        move = self._destinations(sub_queue, transition)
        if move is not None:
            destinations, source = move
            now_ms = self._clock()
            enqueued = await self._database.write(
                lambda connection: store.move(
                    connection,
                    entity.number,
                    transition,
                    destinations,
                    now_ms,
                    dead_letter_source=source,
                )
            )
            self.add(enqueued)
            return
        if transition.is_durable:
            await self._database.write(
                lambda connection: store.apply(connection, entity.number, transition)
            )
        if transition.action is Action.REMOVE:
            return
        target = sub_queue
        if transition.action is Action.DEAD_LETTER and sub_queue.kind is SubQueueKind.ACTIVE:
            target = entity.sub_queues[SubQueueKind.DEAD_LETTER]
        target.queue.add(transition.after)
        self._pump(target)

    def _destinations(
        self, sub_queue: SubQueue, transition: Transition
    ) -> tuple[tuple[Destination, ...], str | None] | None:
        """Destinations of a message that leaves its entity, and the source of a dead letter."""
        entity, kind, action = sub_queue.entity, sub_queue.kind, transition.action
        if action is Action.DEAD_LETTER:
            if kind is not SubQueueKind.ACTIVE or not entity.forwards(SubQueueKind.DEAD_LETTER):
                return None
            kind = SubQueueKind.DEAD_LETTER
        elif action is not Action.ROUTE:
            return None
        facts = contents.facts(self.read(sub_queue, transition.before.sequence_number))
        if kind is SubQueueKind.DEAD_LETTER:
            return self._namespace.forward(entity, kind, facts), entity.path
        return self._namespace.route(entity, facts), None

    def render(self, sub_queue: SubQueue, lock: Lock) -> bytes:
        """The payload of a locked message."""
        return contents.render(self.read(sub_queue, lock.entry.sequence_number), lock)

    def read(self, sub_queue: SubQueue, sequence_number: int) -> StoredMessage:
        """A message of a queue, from the database."""
        stored = store.message(self._database.read, sub_queue.entity.number, sequence_number)
        assert stored is not None  # every message in memory is committed
        return stored

    def add(self, enqueued: Sequence[Enqueued]) -> None:
        """Put messages that are committed into their queues."""
        changed: set[SubQueue] = set()
        for item in enqueued:
            sub_queue = self._by_number[item.entity].sub_queues[item.kind]
            sub_queue.queue.add(item.entry)
            changed.add(sub_queue)
        for sub_queue in changed:
            self._pump(sub_queue)
