"""A Service Bus namespace in memory: the broker, and what the handlers ask its SDK for.

Duplicates are detected by message id for two days, messages are scheduled, locked for a minute,
redelivered at once when they are abandoned, and dead-lettered after ten deliveries.
https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from tests.simulation.network import Network, Unavailable
from tests.simulation.scheduler import Scheduler

LOCK = timedelta(minutes=1)
DUPLICATE_WINDOW = timedelta(days=2)
DELIVERIES_LIMIT = 10
# infra/local/Config.json: what Event Grid delivers has no message ids of ours.
WITHOUT_DUPLICATE_DETECTION = frozenset({"blob-events", "job-events"})
Result = TypeVar("Result")


@dataclass(eq=False)
class Message:
    """A message on a queue; also what a receiver and a trigger see of it."""

    message_id: str
    content: bytes
    application_properties: dict[bytes, Any]
    subject: str | None
    enqueued_at: datetime
    deliveries: int = 0
    locked_until: datetime | None = None
    dead_letter_reason: str | None = None
    dead_letter_error_description: str | None = None
    sequence_number: int = 0
    """Given by each queue that it is put on."""

    @property
    def enqueued_time_utc(self) -> datetime:
        return self.enqueued_at

    @property
    def body(self) -> Any:
        """The body in the SDK's form: an iterator of parts."""
        return iter([self.content])

    def get_body(self) -> bytes:
        """The body in the form of `azure.functions.ServiceBusMessage`."""
        return self.content


@dataclass(eq=False)
class Queue:
    """One entity that messages are received from."""

    name: str
    messages: list[Message] = field(default_factory=list[Message])


class Broker:
    """The namespace."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._numbers = itertools.count(1)
        self._seen: dict[tuple[str, str], datetime] = {}
        self.queues: dict[str, Queue] = {}
        self.published: dict[str, list[Message]] = {}
        """Topic → every message that it took, duplicates left out."""
        self.sent: dict[str, list[str]] = {}
        """Queue → the ids of all messages that it took, duplicates left out."""
        self.on_available: Callable[[str], None] = lambda _: None
        """Called with a queue's name when there is something to receive."""

    def queue(self, name: str) -> Queue:
        return self.queues.setdefault(name, Queue(name))

    def dead_letters(self, name: str) -> Queue:
        return self.queue(f"{name}/$deadletterqueue")

    def send(self, kind: str, name: str, given: Any) -> None:
        """Take a message of the SDK, unless its id was seen."""
        now = self._scheduler.now
        seen = self._seen.get((name, given.message_id))
        detects = name not in WITHOUT_DUPLICATE_DETECTION
        if detects and seen is not None and now - seen < DUPLICATE_WINDOW:
            return
        self._seen[name, given.message_id] = now
        body = given.body
        message = Message(
            message_id=given.message_id,
            content=body if isinstance(body, bytes) else b"".join(body),
            application_properties={
                key.encode(): value.encode() if isinstance(value, str) else value
                for key, value in (given.application_properties or {}).items()
            },
            subject=given.subject,
            enqueued_at=max(given.scheduled_enqueue_time_utc or now, now),
        )
        if kind == "topic":
            self.published.setdefault(name, []).append(message)
            return
        self.sent.setdefault(name, []).append(message.message_id)
        self.put(self.queue(name), message)

    def put(self, queue: Queue, message: Message) -> None:
        """Have it received, not before its time."""
        message.locked_until = None
        message.sequence_number = next(self._numbers)
        queue.messages.append(message)
        self._announce(queue, message.enqueued_at)

    def receive(self, queue: Queue, count: int, *, lock: timedelta = LOCK) -> list[Message]:
        """Lock what is there; what was delivered too often is dead-lettered instead."""
        now = self._scheduler.now
        taken: list[Message] = []
        for message in list(queue.messages):
            if len(taken) == count:
                break
            if message.enqueued_at > now or (
                message.locked_until is not None and message.locked_until > now
            ):
                continue
            if message.deliveries >= DELIVERIES_LIMIT:
                self.dead_letter(queue, message, "MaxDeliveryCountExceeded", "delivered 10 times")
                continue
            if "$" not in queue.name:
                message.deliveries += 1
            self.lock(queue, message, lock)
            taken.append(message)
        return taken

    def lock(self, queue: Queue, message: Message, lock: timedelta) -> None:
        message.locked_until = self._scheduler.now + lock
        self._announce(queue, message.locked_until)

    def complete(self, queue: Queue, message: Message) -> None:
        queue.messages.remove(message)

    def abandon(self, queue: Queue, message: Message) -> None:
        message.locked_until = None
        self._announce(queue, self._scheduler.now)

    def dead_letter(
        self, queue: Queue, message: Message, reason: str | None, description: str | None
    ) -> None:
        queue.messages.remove(message)
        message.dead_letter_reason = reason
        message.dead_letter_error_description = description
        message.deliveries = 0
        self.put(self.dead_letters(queue.name), message)

    def holds_lock(self, queue: Queue, message: Message) -> bool:
        return (
            message in queue.messages
            and message.locked_until is not None
            and message.locked_until > self._scheduler.now
        )

    def _announce(self, queue: Queue, when: datetime) -> None:
        self._scheduler.at(when, functools.partial(self.on_available, queue.name))


class ServiceBusClient:
    """The client; its calls go over the network."""

    def __init__(self, broker: Broker, network: Network, scheduler: Scheduler) -> None:
        self.broker = broker
        self.scheduler = scheduler
        self._network = network

    def get_queue_sender(self, name: str) -> Sender:
        return Sender(self, "queue", name)

    def get_topic_sender(self, name: str) -> Sender:
        return Sender(self, "topic", name)

    def get_queue_receiver(self, name: str, *, sub_queue: str | None = None) -> Receiver:
        broker = self.broker
        return Receiver(self, broker.dead_letters(name) if sub_queue else broker.queue(name))

    def call(
        self, operation: str, effect: Callable[[], Result], *, limit: float | None = None
    ) -> Result:
        try:
            return self._network.call("service_bus", operation, effect, limit=limit)
        except Unavailable as error:
            raise ServiceBusError(f"no answer: {error}") from error


class Batch(list[Any]):
    add_message = list[Any].append


class Sender:
    def __init__(self, client: ServiceBusClient, kind: str, name: str) -> None:
        self._client = client
        self._kind = kind
        self._name = name

    def create_message_batch(self) -> Batch:
        return Batch()

    def send_messages(self, message: Any, timeout: float) -> None:
        messages = message if isinstance(message, Batch) else [message]

        def effect() -> None:
            for each in messages:
                self._client.broker.send(self._kind, self._name, each)

        self._client.call(f"send to {self._name}", effect, limit=timeout)

    def close(self) -> None:
        """Do nothing: the fake holds no connection."""


class Receiver:
    def __init__(self, client: ServiceBusClient, queue: Queue) -> None:
        self._client = client
        self._queue = queue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        """Locks run on until they expire."""

    def close(self) -> None:
        """Do nothing: the fake holds no connection."""

    def peek_messages(self, max_message_count: int, *, sequence_number: int = 0) -> list[Message]:
        def effect() -> list[Message]:
            messages = self._queue.messages
            return [each for each in messages if each.sequence_number >= sequence_number]

        found = self._client.call(f"peek at {self._queue.name}", effect)
        return found[:max_message_count]

    def receive_messages(self, *, max_message_count: int, max_wait_time: float) -> list[Message]:
        broker = self._client.broker
        found = self._client.call(
            f"receive from {self._queue.name}",
            lambda: broker.receive(self._queue, max_message_count),
        )
        if not found:
            self._client.scheduler.pause(max_wait_time)
        return found

    def complete_message(self, message: Message) -> None:
        self._settle("complete", message, self._client.broker.complete)

    def abandon_message(self, message: Message) -> None:
        self._settle("abandon", message, self._client.broker.abandon)

    def dead_letter_message(
        self, message: Message, *, reason: str | None, error_description: str | None
    ) -> None:
        def settle(queue: Queue, message: Message) -> None:
            self._client.broker.dead_letter(queue, message, reason, error_description)

        self._settle("dead-letter", message, settle)

    def _settle(
        self, operation: str, message: Message, settle: Callable[[Queue, Message], None]
    ) -> None:
        def effect() -> None:
            if not self._client.broker.holds_lock(self._queue, message):
                raise MessageLockLostError
            settle(self._queue, message)

        self._client.call(operation, effect)
