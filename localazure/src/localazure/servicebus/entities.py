"""The entities of the running namespace, and the routes of messages between them."""

from __future__ import annotations

import uuid
from collections import deque
from dataclasses import replace
from typing import Protocol

from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.configuration import (
    NamespaceConfiguration,
    Queue,
    Subscription,
    SubscriptionProperties,
    Topic,
)
from localazure.servicebus.filters import MessageFacts, matches
from localazure.servicebus.queues import (
    MAX_TRANSFER_HOP_COUNT_EXCEEDED,
    MESSAGE_SIZE_EXCEEDED,
    MessageQueue,
    dead_letter_properties,
)
from localazure.servicebus.store import Destination

MAX_FORWARD_HOPS = 4


class Consumer(Protocol):
    """A receiver attached to a queue."""

    @property
    def receives_and_deletes(self) -> bool:
        """Whether the mode is receive-and-delete; otherwise it is peek-lock."""
        ...

    def has_credit(self) -> bool:
        """Whether the receiver can get another message."""
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
    """The messages or the dead letters of an entity. A topic has scheduled messages only."""

    def __init__(self, entity: Entity, kind: SubQueueKind, queue: MessageQueue) -> None:
        self.entity = entity
        self.kind = kind
        self.queue = queue
        self.consumers: deque[Consumer] = deque()

    def next_consumer(self) -> Consumer | None:
        """Return the next consumer with credit, round-robin."""
        for _ in range(len(self.consumers)):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if consumer.has_credit():
                return consumer
        return None


class Entity:
    """A queue, topic or subscription with its number in the store.

    Args:
        path: in the case of the configuration file.
        message_bytes: the limit of a message to the entity.
    """

    def __init__(
        self,
        number: int,
        path: str,
        configured: Queue | Topic | Subscription,
        *,
        message_bytes: int,
    ) -> None:
        self.number = number
        self.message_bytes = message_bytes
        self.path = path
        self.configured = configured
        properties = configured.properties
        # These settings of a queue have no effect on a topic, which holds scheduled messages only.
        if not isinstance(properties, SubscriptionProperties):
            properties = SubscriptionProperties()
        self.sub_queues = {
            kind: SubQueue(
                self,
                kind,
                MessageQueue(
                    lock_ms=properties.lock_ms,
                    max_delivery_count=properties.max_delivery_count,
                    dead_letters_expired=properties.dead_lettering_on_message_expiration,
                    kind=kind,
                ),
            )
            for kind in SubQueueKind
        }
        self.active = self.sub_queues[SubQueueKind.ACTIVE]
        self._forwards = {
            SubQueueKind.ACTIVE: properties.forward_to,
            SubQueueKind.DEAD_LETTER: properties.forward_dead_lettered_messages_to,
        }

    @property
    def is_topic(self) -> bool:
        """Whether the entity is a topic, which passes its messages to subscriptions."""
        return isinstance(self.configured, Topic)

    @property
    def is_subscription(self) -> bool:
        """Whether the entity is a subscription, which gets messages from its topic only."""
        return isinstance(self.configured, Subscription)

    def forwards(self, kind: SubQueueKind) -> str:
        """Path of the entity that gets the messages of this kind, in lower case; empty if none."""
        return self._forwards.get(kind, "").lower()


class Namespace:
    """All entities by path. Paths are case-insensitive.

    Args:
        numbers: path → number in the store.
    """

    def __init__(self, configuration: NamespaceConfiguration, numbers: dict[str, int]) -> None:
        self._by_path = {
            path.lower(): Entity(
                numbers[path],
                path,
                configured,
                message_bytes=configuration.message_bytes(configured),
            )
            for path, configured in configuration.entities()
        }
        self.batch_bytes = configuration.sku.batch_bytes

    @property
    def entities(self) -> list[Entity]:
        """All entities."""
        return list(self._by_path.values())

    def find(self, path: str) -> Entity | None:
        """The entity with this path, which must be in lower case."""
        return self._by_path.get(path)

    def route(self, entity: Entity, facts: MessageFacts, hops: int = 0) -> tuple[Destination, ...]:
        """The entities that get a message sent to this entity.

        Args:
            entity: the entity.
            facts: the message.
            hops: how often the message has been forwarded already.
        """
        configured, ttl_ms = entity.configured, entity.configured.properties.default_ttl_ms
        if not isinstance(configured, Topic):
            if entity.forwards(SubQueueKind.ACTIVE):
                return self.forward(entity, SubQueueKind.ACTIVE, facts, hops)
            return (Destination(entity.number, ttl_ms),)
        destinations: list[Destination] = []
        for subscription in configured.subscriptions:
            if matches(subscription.filters, facts):
                path = configured.path_of(subscription).lower()
                destinations += self.route(self._by_path[path], facts, hops)
        return tuple(
            replace(item, default_ttl_ms=_shorter(item.default_ttl_ms, ttl_ms))
            for item in destinations
        )

    def forward(
        self, entity: Entity, kind: SubQueueKind, facts: MessageFacts, hops: int = 0
    ) -> tuple[Destination, ...]:
        """The entities that get a message of an entity that forwards messages of this kind.

        What cannot be forwarded goes to the entity's own transfer dead-letter queue, see
        https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues#dead-lettering-in-forwardto-or-sendvia-scenarios
        """
        target, size = self._by_path[entity.forwards(kind)], facts.size
        if hops == MAX_FORWARD_HOPS:
            reason = dead_letter_properties(
                MAX_TRANSFER_HOP_COUNT_EXCEEDED,
                f"The message was forwarded {hops} times, and {entity.path} forwards it again.",
            )
        elif size > target.message_bytes:
            reason = dead_letter_properties(
                MESSAGE_SIZE_EXCEEDED,
                f"The message has {size} bytes; {target.path} takes {target.message_bytes}.",
            )
        else:
            return self.route(target, facts, hops + 1)
        return (Destination(entity.number, None, SubQueueKind.TRANSFER_DEAD_LETTER, reason),)


def _shorter(one: int | None, other: int | None) -> int | None:
    limited = [ttl for ttl in (one, other) if ttl is not None]
    return min(limited) if limited else None
