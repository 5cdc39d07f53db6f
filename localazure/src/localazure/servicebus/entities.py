"""The entities of the running namespace, and the routes of messages between them."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Protocol

from localazure.servicebus.configuration import NamespaceConfig, QueueConfig, TopicConfig
from localazure.servicebus.filters import MessageFacts, matches
from localazure.servicebus.queues import MessageQueue
from localazure.servicebus.store import Destination


class Consumer(Protocol):
    """A receiver attached to a queue."""

    @property
    def receives_and_deletes(self) -> bool:
        """Whether it receives and deletes messages; otherwise it locks them."""
        ...

    def has_credit(self) -> bool:
        """Whether it can get another message."""
        ...

    def reserve(self) -> None:
        """Reserve one credit for a message that is being deleted."""

    def release(self) -> None:
        """Return a reserved credit: the message could not be deleted."""

    def deliver_deleted(self, payload: bytes) -> None:
        """Deliver a deleted message for a reserved credit."""

    def deliver_locked(self, token: uuid.UUID, payload: bytes) -> None:
        """Deliver a message that is locked for this consumer."""


class SubQueue:
    """The messages of a queue or subscription, or its dead letters, or a topic's scheduled ones."""

    def __init__(self, entity: Entity, queue: MessageQueue, *, is_dead_letter: bool) -> None:
        self.entity = entity
        self.queue = queue
        self.is_dead_letter = is_dead_letter
        self.consumers: deque[Consumer] = deque()

    def next_consumer(self) -> Consumer | None:
        """The next consumer with credit, in turn."""
        for _ in range(len(self.consumers)):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if consumer.has_credit():
                return consumer
        return None


class Entity:
    """A queue, topic or subscription with its number in the store."""

    def __init__(
        self, number: int, config: QueueConfig | TopicConfig, *, is_subscription: bool
    ) -> None:
        self.number = number
        self.config = config
        self.is_subscription = is_subscription
        """Whether it gets messages from its topic only."""
        # A topic holds scheduled messages only: the settings of a queue have no effect on them.
        holder = config if isinstance(config, QueueConfig) else QueueConfig(path=config.path)
        self.active = SubQueue(self, _message_queue(holder), is_dead_letter=False)
        self.dead_letters = SubQueue(
            self, _message_queue(holder, is_dead_letter_queue=True), is_dead_letter=True
        )

    @property
    def path(self) -> str:
        """The path in the case of the configuration file."""
        return self.config.path

    @property
    def is_topic(self) -> bool:
        """Whether it passes its messages to subscriptions."""
        return isinstance(self.config, TopicConfig)

    def sub_queues(self) -> tuple[SubQueue, SubQueue]:
        """The entity's own messages and its dead letters."""
        return self.active, self.dead_letters


def _message_queue(config: QueueConfig, *, is_dead_letter_queue: bool = False) -> MessageQueue:
    return MessageQueue(
        lock_ms=config.lock_ms,
        max_delivery_count=config.max_delivery_count,
        dead_letters_expired=config.dead_letters_expired,
        is_dead_letter_queue=is_dead_letter_queue,
    )


class Namespace:
    """All entities by path. Paths are case-insensitive."""

    def __init__(self, config: NamespaceConfig, numbers: dict[str, int]) -> None:
        self._by_path: dict[str, Entity] = {}
        for queue in config.queues:
            self._add(queue, numbers)
        for topic in config.topics:
            self._add(topic, numbers)
            for subscription in topic.subscriptions:
                self._add(subscription, numbers, is_subscription=True)

    def _add(
        self,
        config: QueueConfig | TopicConfig,
        numbers: dict[str, int],
        *,
        is_subscription: bool = False,
    ) -> None:
        entity = Entity(numbers[config.path], config, is_subscription=is_subscription)
        self._by_path[config.path.lower()] = entity

    @property
    def entities(self) -> list[Entity]:
        """All of them."""
        return list(self._by_path.values())

    def find(self, path: str) -> Entity | None:
        """The entity with this path, which must be in lower case."""
        return self._by_path.get(path)

    def route(self, entity: Entity, facts: MessageFacts) -> tuple[Destination, ...]:
        """The entities that get a message which is sent to this entity."""
        config = entity.config
        if isinstance(config, QueueConfig):
            if config.forward_to is not None:
                return self.route(self._by_path[config.forward_to.lower()], facts)
            return (Destination(entity.number, config.default_ttl_ms),)
        destinations: list[Destination] = []
        for subscription in config.subscriptions:
            if matches(subscription.rules, facts):
                destinations += self.route(self._by_path[subscription.path.lower()], facts)
        return tuple(
            Destination(item.entity, _shorter(item.default_ttl_ms, config.default_ttl_ms))
            for item in destinations
        )


def _shorter(one: int | None, other: int | None) -> int | None:
    known = [ttl for ttl in (one, other) if ttl is not None]
    return min(known) if known else None


def paths(config: NamespaceConfig) -> list[str]:
    """The paths of everything configured."""
    topics = [(topic.path, *(item.path for item in topic.subscriptions)) for topic in config.topics]
    return [queue.path for queue in config.queues] + [path for group in topics for path in group]
