"""What a queue may do with a message, and when: pure logic, time is an argument.

A `MessageQueue` is a queue, a subscription, or the dead-letter sub-queue of either. It holds
what decides about a message, not the message. Locks live here only: a broker that starts again has
none, so its messages are available again, with the delivery count that was made durable.

Every decision that must be durable comes out as a `Transition`: the message is out of the queue
until the caller has committed it and puts the message where the transition says. So nobody sees
the outcome of a decision that could still be lost.
"""

from __future__ import annotations

import enum
import heapq
import uuid
from dataclasses import dataclass, replace


class MessageState(enum.IntEnum):
    """The durable state; the values are those of the annotation `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """What decides about a message. Times are ms since the Unix epoch."""

    sequence_number: int
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    expires_ms: int | None = None
    due_ms: int = 0
    """When a scheduled message becomes active."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A message in the hands of one receiver."""

    token: uuid.UUID
    entry: Entry
    until_ms: int


class Event(enum.Enum):
    """What happens to a message."""

    DUE = enum.auto()
    CANCEL = enum.auto()
    TAKE = enum.auto()
    EXPIRE = enum.auto()
    COMPLETE = enum.auto()
    ABANDON = enum.auto()
    RELEASE = enum.auto()
    DEFER = enum.auto()
    DEAD_LETTER = enum.auto()
    LOCK_EXPIRE = enum.auto()


class Place(enum.Enum):
    """Where a message goes."""

    BACK = enum.auto()  # to the queue, as it was
    ASIDE = enum.auto()  # to the queue, deferred
    DEAD_LETTERS = enum.auto()
    ROUTED = enum.auto()  # to where messages sent to this entity go
    GONE = enum.auto()


class Standing(enum.Enum):
    """How a message stands within its queue."""

    SCHEDULED = enum.auto()
    AVAILABLE = enum.auto()
    DEFERRED = enum.auto()
    LOCKED = enum.auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event leads to."""

    place: Place
    counts: bool = False
    """Whether it was a failed delivery."""


RULES: dict[tuple[Standing, Event], Rule] = {
    (Standing.SCHEDULED, Event.DUE): Rule(Place.ROUTED),
    (Standing.SCHEDULED, Event.CANCEL): Rule(Place.GONE),
    (Standing.AVAILABLE, Event.TAKE): Rule(Place.GONE),
    (Standing.AVAILABLE, Event.EXPIRE): Rule(Place.DEAD_LETTERS),
    (Standing.DEFERRED, Event.TAKE): Rule(Place.GONE),
    (Standing.DEFERRED, Event.EXPIRE): Rule(Place.DEAD_LETTERS),
    (Standing.LOCKED, Event.COMPLETE): Rule(Place.GONE),
    (Standing.LOCKED, Event.ABANDON): Rule(Place.BACK, counts=True),
    (Standing.LOCKED, Event.RELEASE): Rule(Place.BACK),
    (Standing.LOCKED, Event.DEFER): Rule(Place.ASIDE),
    (Standing.LOCKED, Event.DEAD_LETTER): Rule(Place.DEAD_LETTERS),
    (Standing.LOCKED, Event.LOCK_EXPIRE): Rule(Place.BACK, counts=True),
}

# Reasons that Azure Service Bus gives itself, see
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-dead-letter-queues
MAX_DELIVERY_COUNT_EXCEEDED = "MaxDeliveryCountExceeded"
TTL_EXPIRED = "TTLExpiredException"


@dataclass(frozen=True, slots=True)
class Transition:
    """A decision to make durable before anyone sees it."""

    before: Entry
    after: Entry
    place: Place
    reason: str | None = None
    description: str | None = None

    @property
    def is_durable(self) -> bool:
        """Whether there is anything to write."""
        return self.place is not Place.BACK or self.before != self.after


class LockLostError(Exception):
    """The lock token is unknown: the lock expired, or the message is settled."""


class MessageNotFoundError(Exception):
    """No message of that sequence number stands as it would have to."""


class MessageQueue:
    """The messages of one queue, subscription, or dead-letter sub-queue."""

    def __init__(
        self,
        *,
        lock_ms: int,
        max_delivery_count: int,
        dead_letters_expired: bool,
        is_dead_letter_queue: bool = False,
    ) -> None:
        self._lock_ms = lock_ms
        self._max_delivery_count = max_delivery_count
        self._dead_letters_expired = dead_letters_expired
        self._is_dead_letter_queue = is_dead_letter_queue
        self._at_rest: dict[int, Entry] = {}  # available, deferred, scheduled
        self._locks: dict[uuid.UUID, Lock] = {}
        # Both heaps may hold numbers and tokens of the past; those are passed over.
        self._ready: list[int] = []
        self._timers: list[tuple[int, int, uuid.UUID | None]] = []

    def __len__(self) -> int:
        """Messages at rest and locked."""
        return len(self._at_rest) + len(self._locks)

    def add(self, entry: Entry) -> None:
        """Put a message into the queue, or back into it."""
        number = entry.sequence_number
        self._at_rest[number] = entry
        if entry.state is MessageState.ACTIVE:
            heapq.heappush(self._ready, number)
        if entry.state is MessageState.SCHEDULED:
            heapq.heappush(self._timers, (entry.due_ms, number, None))
        elif entry.expires_ms is not None:
            heapq.heappush(self._timers, (entry.expires_ms, number, None))

    # --- receiving ------------------------------------------------------------------------------

    def lock_next(self, now_ms: int) -> Lock | None:
        """Lock the available message of the lowest sequence number."""
        entry = self._next_available(now_ms)
        return None if entry is None else self._lock(entry, now_ms)

    def take_next(self, now_ms: int) -> Transition | None:
        """Take out the available message of the lowest sequence number."""
        entry = self._next_available(now_ms)
        return None if entry is None else self._decide(entry, Standing.AVAILABLE, Event.TAKE)

    def lock_deferred(self, sequence_number: int, now_ms: int) -> Lock:
        """Lock a deferred message.

        Raises:
            MessageNotFoundError: it is not deferred, or locked already.
        """
        return self._lock(self._deferred(sequence_number, now_ms), now_ms)

    def take_deferred(self, sequence_number: int, now_ms: int) -> Transition:
        """Take out a deferred message.

        Raises:
            MessageNotFoundError: it is not deferred, or locked.
        """
        entry = self._deferred(sequence_number, now_ms)
        return self._decide(entry, Standing.DEFERRED, Event.TAKE)

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
        *,
        reason: str | None = None,
        description: str | None = None,
    ) -> Transition:
        """Decide on a locked message.

        Raises:
            LockLostError: the lock is gone.
        """
        lock = self._live_lock(token, now_ms)
        del self._locks[token]
        transition = self._decide(lock.entry, Standing.LOCKED, event)
        if event is Event.DEAD_LETTER:
            return replace(transition, reason=reason, description=description)
        return transition

    def renew(self, token: uuid.UUID, now_ms: int) -> int:
        """Prolong a lock by a whole lock duration from now; until when, in ms.

        Raises:
            LockLostError: the lock is gone.
        """
        lock = replace(self._live_lock(token, now_ms), until_ms=now_ms + self._lock_ms)
        self._locks[token] = lock
        heapq.heappush(self._timers, (lock.until_ms, lock.entry.sequence_number, token))
        return lock.until_ms

    def holds(self, token: uuid.UUID, now_ms: int) -> bool:
        """Whether the lock is held."""
        lock = self._locks.get(token)
        return lock is not None and lock.until_ms > now_ms

    # --- scheduled messages and the passing of time -----------------------------------------------

    def is_scheduled(self, sequence_number: int) -> bool:
        """Whether the message is scheduled and could be cancelled."""
        entry = self._at_rest.get(sequence_number)
        return entry is not None and entry.state is MessageState.SCHEDULED

    def cancel(self, sequence_number: int) -> Transition:
        """Take back a scheduled message.

        Raises:
            MessageNotFoundError: it is not scheduled, or no more.
        """
        if not self.is_scheduled(sequence_number):
            raise MessageNotFoundError(f"no message {sequence_number} is scheduled")
        return self._decide(self._at_rest[sequence_number], Standing.SCHEDULED, Event.CANCEL)

    def advance(self, now_ms: int) -> list[Transition]:
        """Everything that time has decided by now: locks, lifetimes, schedules."""
        transitions: list[Transition] = []
        while self._timers and self._timers[0][0] <= now_ms:
            _, number, token = heapq.heappop(self._timers)
            if token is not None:
                lock = self._locks.get(token)
                if lock is not None and lock.until_ms <= now_ms:
                    del self._locks[token]
                    transitions.append(self._decide(lock.entry, Standing.LOCKED, Event.LOCK_EXPIRE))
                continue
            entry = self._at_rest.get(number)
            if entry is None:
                continue
            if entry.state is MessageState.SCHEDULED and entry.due_ms <= now_ms:
                transitions.append(self._decide(entry, Standing.SCHEDULED, Event.DUE))
            elif self._is_expired(entry, now_ms):
                transitions.append(self._decide(entry, _standing(entry), Event.EXPIRE))
        return transitions

    def next_due_ms(self) -> int | None:
        """When `advance` may have something to decide."""
        return self._timers[0][0] if self._timers else None

    # --- within ---------------------------------------------------------------------------------

    def _next_available(self, now_ms: int) -> Entry | None:
        while self._ready:
            number = self._ready[0]
            entry = self._at_rest.get(number)
            if entry is None or entry.state is not MessageState.ACTIVE:
                heapq.heappop(self._ready)
            elif self._is_expired(entry, now_ms):
                heapq.heappop(self._ready)  # its timer sees to it
            else:
                heapq.heappop(self._ready)
                return entry
        return None

    def _deferred(self, sequence_number: int, now_ms: int) -> Entry:
        entry = self._at_rest.get(sequence_number)
        if (
            entry is None
            or entry.state is not MessageState.DEFERRED
            or self._is_expired(entry, now_ms)
        ):
            raise MessageNotFoundError(f"no message {sequence_number} is deferred and unlocked")
        return entry

    def _lock(self, entry: Entry, now_ms: int) -> Lock:
        lock = Lock(uuid.uuid4(), entry, now_ms + self._lock_ms)
        del self._at_rest[entry.sequence_number]
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

    def _decide(self, entry: Entry, standing: Standing, event: Event) -> Transition:
        self._at_rest.pop(entry.sequence_number, None)
        rule = RULES[standing, event]
        after, place = entry, rule.place
        reason = description = None
        if rule.counts:
            after = replace(after, delivery_count=entry.delivery_count + 1)
            if not self._is_dead_letter_queue and after.delivery_count >= self._max_delivery_count:
                place = Place.DEAD_LETTERS
                reason = MAX_DELIVERY_COUNT_EXCEEDED
                description = (
                    f"Message could not be consumed after {self._max_delivery_count} delivery "
                    "attempts."
                )
        if event is Event.EXPIRE:
            place = place if self._dead_letters_expired else Place.GONE
            reason, description = TTL_EXPIRED, "The message expired and was dead lettered."
        if place is Place.ASIDE:
            after = replace(after, state=MessageState.DEFERRED)
        if place is Place.DEAD_LETTERS:  # where messages have no lifetime
            after = replace(after, state=MessageState.ACTIVE, expires_ms=None)
        return Transition(entry, after, place, reason, description)


def _standing(entry: Entry) -> Standing:
    return {
        MessageState.ACTIVE: Standing.AVAILABLE,
        MessageState.DEFERRED: Standing.DEFERRED,
        MessageState.SCHEDULED: Standing.SCHEDULED,
    }[entry.state]
