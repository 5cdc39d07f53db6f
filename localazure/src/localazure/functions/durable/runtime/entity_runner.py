"""Runs the operations that wait for entities: one batch at a time for each, in order of arrival."""

from __future__ import annotations

from collections.abc import Callable

from localazure.functions.durable.engine.history import parse_timestamp
from localazure.functions.durable.runtime.hub_settings import HubSettings
from localazure.functions.durable.runtime.inboxes import Inboxes
from localazure.functions.durable.runtime.work_queue import WorkQueue
from localazure.functions.durable.runtime.worker import Worker
from localazure.functions.durable.store.records import Delivery, Entity, EntityCommit, Message
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import LaneBroken


class EntityRunner:
    """Runs batches of operations. One transaction has state, responses and consumed requests.

    Args:
        settings: its settings and clock.
        worker: runs the operations.
        store: has the entities.
        mail: the waiting messages.
        deliver: delivers what a batch has sent and started.

    Attributes:
        queue: the entities whose operations are to run.
    """

    def __init__(
        self,
        *,
        settings: HubSettings,
        worker: Worker,
        store: Store,
        mail: Inboxes,
        deliver: Callable[[Delivery], None],
    ) -> None:
        self._worker = worker
        self._store = store
        self._mail = mail
        self._clock = settings.clock
        self._deliver = deliver
        limit = settings.options.max_concurrent_entity_functions
        self.queue = WorkQueue[str]("entity", limit, self._run)

    async def _run(self, identifier: str) -> None:
        while messages := self._due(identifier):
            generation = self._store.generation
            before = self._store.entity(identifier) or Entity(
                entity_id=identifier, state_json=None, updated_at=self._clock()
            )
            effects = await self._worker.run_operations(before, messages)
            if generation != self._store.generation:
                continue  # the store was reloaded: the messages are different objects
            if effects is None:
                return
            turn = EntityCommit(
                entity=effects.entity,
                consumed=effects.consumed,
                messages=[self._store.message(*message) for message in effects.messages],
                started=effects.started,
            )
            try:
                delivery = await self._store.commit_entity(turn)
            except LaneBroken:
                if generation != self._store.generation:
                    continue  # the store was reloaded
                raise
            self._mail.remove(identifier, turn.consumed)
            self._deliver(delivery)

    def _due(self, identifier: str) -> list[Message]:
        """The waiting messages without those for later, for which it arranges a later run."""
        now = self._clock()
        due: list[Message] = []
        delays: list[float] = []
        for message in self._mail.of(identifier):
            at = message.event.get("ScheduledTime")
            delay_seconds = (parse_timestamp(at) - now).total_seconds() if at else 0
            if delay_seconds > 0:
                delays.append(delay_seconds)
            else:
                due.append(message)
        if delays:
            self.queue.request_later(identifier, min(delays))
        return due
