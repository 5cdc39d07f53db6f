"""The rules of a queue. Pure logic: the time is an argument.

A `MessageQueue` is a queue, a subscription, or a sub-queue of either. It holds the
broker's view of each message, not the contents. Locks exist in memory only: after a restart all
messages are available again, with the last delivery count that was committed.

Each change that must be durable is a `Transition`. The message is outside the queue until the
caller has committed the transition and puts the message where the transition says. So no receiver
sees an outcome that a crash could undo.
"""

from __future__ import annotations

import enum
import heapq
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp.errors import AmqpError


class MessageState(enum.IntEnum):
    """The durable state; the values are those of the annotation `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """The broker's view of a message. Times are ms since the Unix epoch."""

    sequence_number: int
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    expires_ms: int | None = None
    due_ms: int = 0
    """The time at which a scheduled message becomes active."""


@dataclass(frozen=True, slots=True)
class Lock:
    """The lock that one receiver has on a message."""

    token: uuid.UUID
    entry: Entry
    until_ms: int


class Event(enum.Enum):
    """Everything that can happen to a message."""

    DUE = enum.auto()
    CANCEL = enum.auto()
    RECEIVE_AND_DELETE = enum.auto()
    EXPIRE = enum.auto()
    COMPLETE = enum.auto()
    ABANDON = enum.auto()
    RELEASE = enum.auto()
    DEFER = enum.auto()
    DEAD_LETTER = enum.auto()
    LOCK_EXPIRE = enum.auto()


class Action(enum.Enum):
    """Effect of an event on a message."""

    RETURN = enum.auto()  # to the queue
    DEFER = enum.auto()
    DEAD_LETTER = enum.auto()
    ROUTE = enum.auto()  # to the destinations of messages to this entity
    REMOVE = enum.auto()


_ACTIONS = {
    Event.DUE: Action.ROUTE,
    Event.CANCEL: Action.REMOVE,
    Event.RECEIVE_AND_DELETE: Action.REMOVE,
    Event.EXPIRE: Action.DEAD_LETTER,
    Event.COMPLETE: Action.REMOVE,
    Event.ABANDON: Action.RETURN,
    Event.RELEASE: Action.RETURN,
    Event.DEFER: Action.DEFER,
    Event.DEAD_LETTER: Action.DEAD_LETTER,
    Event.LOCK_EXPIRE: Action.RETURN,
}
_FAILED_DELIVERIES = {Event.ABANDON, Event.LOCK_EXPIRE}
"""Events that increase the delivery count."""

# Application properties of a dead letter, and the reasons that Azure Service Bus sets:
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues
DEAD_LETTER_REASON = "DeadLetterReason"
DEAD_LETTER_DESCRIPTION = "DeadLetterErrorDescription"
MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"
MAX_TRANSFER_HOP_COUNT_EXCEEDED = "MaxTransferHopCountExceeded"
TTL_EXPIRED = "TTLExpiredException"
# The service does not document the reason of a message that is too large for the next entity.
MESSAGE_SIZE_EXCEEDED = "MessageSizeExceeded"


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a message. The caller commits it before it becomes visible."""

    before: Entry
    after: Entry
    action: Action
    properties: dict[str, Any] = field(default_factory=dict[str, Any])
    """Application properties that the change sets."""

    @property
    def is_durable(self) -> bool:
        """Whether the change must be written."""
        return (
            self.action is not Action.RETURN or self.before != self.after or bool(self.properties)
        )


class LockLostError(AmqpError):
    """The lock token is unknown: the lock expired, or the message is settled."""

    condition = "com.microsoft:message-lock-lost"


class MessageNotFoundError(AmqpError):
    """No message with that sequence number is in the required state, scheduled or deferred."""

    condition = "com.microsoft:message-not-found"


class MessageQueue:
    """The messages of one queue or subscription, or of a sub-queue."""

    def __init__(
        self,
        *,
        lock_ms: int,
        max_delivery_count: int,
        dead_letters_expired: bool,
        kind: SubQueueKind = SubQueueKind.ACTIVE,
    ) -> None:
        self._lock_ms = lock_ms
        self._max_delivery_count = max_delivery_count
        self._dead_letters_expired = dead_letters_expired
        self._kind = kind
        self._unlocked: dict[int, Entry] = {}  # available, deferred or scheduled
        self._locks: dict[uuid.UUID, Lock] = {}
        # Both heaps may hold stale numbers and tokens, which are skipped.
        self._ready: list[int] = []
        self._timers: list[tuple[int, int, uuid.UUID | None]] = []

    def __len__(self) -> int:
        """All messages, locked ones included."""
        return len(self._unlocked) + len(self._locks)

    def add(self, entry: Entry) -> None:
        """Add a new or a returned message to the queue."""
        number = entry.sequence_number
        self._unlocked[number] = entry
        if entry.state is MessageState.ACTIVE:
            heapq.heappush(self._ready, number)
        if entry.state is MessageState.SCHEDULED:
            heapq.heappush(self._timers, (entry.due_ms, number, None))
        elif entry.expires_ms is not None:
            heapq.heappush(self._timers, (entry.expires_ms, number, None))

    # --- receiving ------------------------------------------------------------------------------

    def lock_next(self, now_ms: int) -> Lock | None:
        """Lock the available message with the lowest sequence number."""
        entry = self._next_available(now_ms)
        return None if entry is None else self._lock(entry, now_ms)

    def receive_and_delete_next(self, now_ms: int) -> Transition | None:
        """Remove the available message with the lowest sequence number."""
        entry = self._next_available(now_ms)
        return None if entry is None else self._decide(entry, Event.RECEIVE_AND_DELETE)

    def lock_deferred(self, sequence_number: int, now_ms: int) -> Lock:
        """Lock a deferred message.

        Raises:
            MessageNotFoundError: the message is not deferred, or locked already.
        """
        return self._lock(self._deferred(sequence_number, now_ms), now_ms)

    def receive_and_delete_deferred(self, sequence_number: int, now_ms: int) -> Transition:
        """Remove a deferred message.

        Raises:
            MessageNotFoundError: the message is not deferred, or locked.
        """
        return self._decide(self._deferred(sequence_number, now_ms), Event.RECEIVE_AND_DELETE)

    def has_deferred(self, sequence_number: int, now_ms: int) -> bool:
        """Whether the message could be received by its number."""
        try:
            self._deferred(sequence_number, now_ms)
        except MessageNotFoundError:
            return False
        return True

    # --- settling -------------------------------------------------------------------------------

    def settle(
        self,
        token: uuid.UUID,
        event: Event,
        now_ms: int,
        properties: Mapping[str, Any] | None = None,
    ) -> Transition:
        """Settle a locked message.

        Args:
            token: the lock's token.
            event: the receiver's outcome.
            now_ms: the current time.
            properties: application properties to set. The broker's dead-letter reason wins.

        Raises:
            LockLostError: the lock expired, or the message is settled.
        """
        lock = self._live_lock(token, now_ms)
        del self._locks[token]
        transition = self._decide(lock.entry, event)
        return replace(transition, properties={**(properties or {}), **transition.properties})

    def renew(self, token: uuid.UUID, now_ms: int) -> int:
        """Extend a lock to a full lock duration from now. Returns its new end in ms.

        Raises:
            LockLostError: the lock expired, or the message is settled.
        """
        lock = replace(self._live_lock(token, now_ms), until_ms=now_ms + self._lock_ms)
        self._locks[token] = lock
        heapq.heappush(self._timers, (lock.until_ms, lock.entry.sequence_number, token))
        return lock.until_ms

    def holds(self, token: uuid.UUID, now_ms: int) -> bool:
        """Whether the lock is held."""
        lock = self._locks.get(token)
        return lock is not None and lock.until_ms > now_ms

    # --- scheduled messages and timers ------------------------------------------------------------

    def is_scheduled(self, sequence_number: int) -> bool:
        """Whether the message is scheduled and could be cancelled."""
        entry = self._unlocked.get(sequence_number)
        return entry is not None and entry.state is MessageState.SCHEDULED

    def cancel(self, sequence_number: int) -> Transition:
        """Cancel a scheduled message.

        Raises:
            MessageNotFoundError: the message is not scheduled.
        """
        if not self.is_scheduled(sequence_number):
            raise MessageNotFoundError(f"no message {sequence_number} is scheduled")
        return self._decide(self._unlocked[sequence_number], Event.CANCEL)

    def advance(self, now_ms: int) -> list[Transition]:
        """The transitions that are due: expired locks, expired messages, scheduled messages."""
        transitions: list[Transition] = []
        while self._timers and self._timers[0][0] <= now_ms:
            _, number, token = heapq.heappop(self._timers)
            if token is not None:
                lock = self._locks.get(token)
                if lock is not None and lock.until_ms <= now_ms:
                    del self._locks[token]
                    transitions.append(self._decide(lock.entry, Event.LOCK_EXPIRE))
                continue
            entry = self._unlocked.get(number)
            if entry is None:
                continue
            if entry.state is MessageState.SCHEDULED and entry.due_ms <= now_ms:
                transitions.append(self._decide(entry, Event.DUE))
            elif self._is_expired(entry, now_ms):
                transitions.append(self._decide(entry, Event.EXPIRE))
        return transitions

    def take_available(self, now_ms: int) -> list[Transition]:
        """Remove all messages that could be received, to route them to other entities."""
        taken: list[Transition] = []
        while (entry := self._next_available(now_ms)) is not None:
            taken.append(self._decide(entry, Event.DUE))
        return taken

    def next_due_ms(self) -> int | None:
        """The earliest time at which `advance` may return a transition."""
        return self._timers[0][0] if self._timers else None

    # --- internals ------------------------------------------------------------------------------

    def _next_available(self, now_ms: int) -> Entry | None:
        while self._ready:
            number = self._ready[0]
            entry = self._unlocked.get(number)
            if entry is None or entry.state is not MessageState.ACTIVE:
                heapq.heappop(self._ready)
            elif self._is_expired(entry, now_ms):
                heapq.heappop(self._ready)  # its timer will dead-letter or remove it
            else:
                heapq.heappop(self._ready)
                return entry
        return None

    def _deferred(self, sequence_number: int, now_ms: int) -> Entry:
        entry = self._unlocked.get(sequence_number)
        if (
            entry is None
            or entry.state is not MessageState.DEFERRED
            or self._is_expired(entry, now_ms)
        ):
            raise MessageNotFoundError(f"no message {sequence_number} is deferred and unlocked")
        return entry

    def _lock(self, entry: Entry, now_ms: int) -> Lock:
        lock = Lock(uuid.uuid4(), entry, now_ms + self._lock_ms)
        del self._unlocked[entry.sequence_number]
        self._locks[lock.token] = lock
        heapq.heappush(self._timers, (lock.until_ms, entry.sequence_number, lock.token))
        return lock

    def _live_lock(self, token: uuid.UUID, now_ms: int) -> Lock:
        lock = self._locks.get(token)
        if lock is None or lock.until_ms <= now_ms:
            raise LockLostError(f"the lock {token} expired, or the message is settled")
        return lock

    def _is_expired(self, entry: Entry, now_ms: int) -> bool:
        return entry.expires_ms is not None and entry.expires_ms <= now_ms

    def _decide(self, entry: Entry, event: Event) -> Transition:
        self._unlocked.pop(entry.sequence_number, None)
        after, action = entry, _ACTIONS[event]
        properties: dict[str, Any] = {}
        if event in _FAILED_DELIVERIES:
            after = replace(after, delivery_count=entry.delivery_count + 1)
            is_active = self._kind is SubQueueKind.ACTIVE
            if is_active and after.delivery_count >= self._max_delivery_count:
                action = Action.DEAD_LETTER
                properties = dead_letter_properties(
                    MAX_DELIVERY_COUNT_EXCEEDED,
                    "Message could not be consumed after "
                    f"{self._max_delivery_count} delivery attempts.",
                )
        if event is Event.EXPIRE:
            action = action if self._dead_letters_expired else Action.REMOVE
            properties = dead_letter_properties(
                TTL_EXPIRED, "The message expired and was dead lettered."
            )
        if action is Action.DEFER:
            after = replace(after, state=MessageState.DEFERRED)
        if action is Action.DEAD_LETTER:  # dead letters do not expire
            after = replace(after, state=MessageState.ACTIVE, expires_ms=None)
        return Transition(entry, after, action, properties)


def dead_letter_properties(reason: str, description: str) -> dict[str, Any]:
    """The application properties of a dead letter."""
    return {DEAD_LETTER_REASON: reason, DEAD_LETTER_DESCRIPTION: description}
