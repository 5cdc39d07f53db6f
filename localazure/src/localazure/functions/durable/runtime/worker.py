"""What runs the code of a task hub: the functions of an app, or connected workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from localazure.functions.durable.engine.episode import Effects
from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.runtime.instance_cache import CachedInstance
from localazure.functions.durable.store.records import Activity, Entity, Message


@dataclass(frozen=True, kw_only=True)
class EntityEffects:
    """The changes made by one batch of operations.

    Attributes:
        entity: the entity's row after it.
        consumed: the messages of these operations.
        messages: receiver, event and execution (None: the current one) of what is sent.
        started: orchestrations to start.
    """

    entity: Entity
    consumed: Sequence[Message]
    messages: Sequence[tuple[str, Event, str | None]] = ()
    started: Sequence[Execution] = ()


class Worker(Protocol):
    """Runs orchestrators, activities and entities; does not write to the store.

    After an exception, the engine calls the same method again.
    """

    async def run_episode(self, live: CachedInstance, events: list[Event]) -> Effects | None:
        """Run the next episode with the events of new messages; None: not here, or not now."""
        ...

    def interrupt(self, instance_id: str) -> None:
        """End the episode of an instance that is terminated, if it can; it returns None then."""
        ...

    async def run_activity(self, activity: Activity) -> Event | Activity:
        """Return the event that ends an activity; or its continuation, for later."""
        ...

    async def run_operations(
        self, entity: Entity, messages: Sequence[Message]
    ) -> EntityEffects | None:
        """Run operations that wait for an entity; None: all of them must wait."""
        ...

    def signal(self, entity_id: str, operation: str, input_json: str | None) -> Event:
        """Create the message of a client's signal to an entity, for `run_operations`."""
        ...
