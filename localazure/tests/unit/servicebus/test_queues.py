"""The rules of a queue, in any order and with restarts, against a simple model."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from localazure.servicebus import store
from localazure.servicebus.addresses import SubQueueKind
from localazure.servicebus.amqp.performatives import Properties
from localazure.servicebus.queues import (
    Action,
    Entry,
    Event,
    MessageNotFoundError,
    MessageQueue,
    MessageState,
    Transition,
)
from localazure.sqlite.database import migrate
from localazure.sqlite.query import querying

LOCK_MS = 1000
MAX_DELIVERY_COUNT = 2


def make_queue(
    *, dead_letters_expired: bool = True, kind: SubQueueKind = SubQueueKind.ACTIVE
) -> MessageQueue:
    return MessageQueue(
        lock_ms=LOCK_MS,
        max_delivery_count=MAX_DELIVERY_COUNT,
        dead_letters_expired=dead_letters_expired,
        kind=kind,
    )


@pytest.mark.parametrize(
    ("dead_letters_expired", "action"), [(True, Action.DEAD_LETTER), (False, Action.REMOVE)]
)
def test_an_expired_message_is_not_delivered(dead_letters_expired: bool, action: Action) -> None:  # noqa: FBT001 - pytest gives it by name
    queue = make_queue(dead_letters_expired=dead_letters_expired)
    queue.add(Entry(1, expires_ms=10))
    queue.add(Entry(2, MessageState.DEFERRED, expires_ms=10))
    assert queue.lock_next(10) is None
    assert not queue.has_deferred(2, 10)
    assert {item.action for item in queue.advance(10)} == {action}
    assert len(queue) == 0


@dataclass
class Modelled:
    """A message of the model."""

    state: str  # active, deferred, scheduled, dead
    count: int = 0
    expires_ms: int | None = None
    due_ms: int = 0
    token: uuid.UUID | None = None
    locked_until_ms: int = 0


class QueueMachine(RuleBasedStateMachine):
    """A queue with its dead-letter queue and its tables, against a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.model: dict[int, Modelled] = {}
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        migrate(self.connection, store.MIGRATIONS)
        self.entity = store.entity_id(self.connection, "queue")
        self.restart()

    def teardown(self) -> None:
        self.connection.close()

    @rule()
    def restart(self) -> None:
        """Locks exist in memory only."""
        self.queue, self.dead = make_queue(), make_queue(kind=SubQueueKind.DEAD_LETTER)
        query = querying(self.connection)
        for kind, queue in zip(SubQueueKind, (self.queue, self.dead), strict=False):
            for entry in store.entries(query, self.entity, kind):
                queue.add(entry)
        for message in self.model.values():
            message.token = None

    @initialize()
    def send_some(self) -> None:
        for ttl_ms in (None, None, None, 3000):
            self.send(ttl_ms, delay_ms=0)

    @rule(ttl_ms=st.one_of(st.none(), st.integers(1, 3000)), delay_ms=st.integers(0, 2000))
    def send(self, ttl_ms: int | None, delay_ms: int) -> None:
        due_ms = self.now_ms + delay_ms if delay_ms else None
        destination = store.Destination(self.entity, None)
        message = store.SentMessage(b"", Properties(), ttl_ms=ttl_ms, due_ms=due_ms)
        submission = store.Submission(self.entity, message, None, (destination,))
        (receipt,) = store.submit(self.connection, [submission], self.now_ms)
        (enqueued,) = receipt.enqueued
        self.queue.add(enqueued.entry)
        expires_ms = None if ttl_ms is None else self.now_ms + ttl_ms
        number = enqueued.entry.sequence_number
        assert number not in self.model
        if due_ms is None:
            self.model[number] = Modelled("active", expires_ms=expires_ms)
        else:
            self.model[number] = Modelled("scheduled", due_ms=due_ms, expires_ms=ttl_ms)

    @precondition(lambda self: self._available("active") or self._available("dead"))
    @rule(is_dead=st.booleans())
    def receive(self, is_dead: bool) -> None:  # noqa: FBT001 - drawn by Hypothesis
        lock = (self.dead if is_dead else self.queue).lock_next(self.now_ms)
        expected = min(self._available("dead" if is_dead else "active"), default=None)
        assert (None if lock is None else lock.entry.sequence_number) == expected
        if lock is not None and expected is not None:
            assert lock.entry.delivery_count == self.model[expected].count
            self.model[expected].token = lock.token
            self.model[expected].locked_until_ms = self.now_ms + LOCK_MS

    @rule()
    def receive_and_delete(self) -> None:
        transition = self.queue.receive_and_delete_next(self.now_ms)
        expected = min(self._available("active"), default=None)
        assert (None if transition is None else transition.before.sequence_number) == expected
        if transition is not None and expected is not None:
            self._apply(self.queue, transition)
            del self.model[expected]

    @precondition(lambda self: self._deferred())
    @rule(data=st.data())
    def receive_deferred(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self._deferred()))
        lock = self.queue.lock_deferred(number, self.now_ms)
        self.model[number].token = lock.token
        self.model[number].locked_until_ms = self.now_ms + LOCK_MS

    @precondition(lambda self: self._locked())
    @rule(
        data=st.data(),
        event=st.sampled_from(
            [Event.COMPLETE, Event.ABANDON, Event.RELEASE, Event.DEFER, Event.DEAD_LETTER]
        ),
    )
    def settle(self, data: st.DataObject, event: Event) -> None:
        number = data.draw(st.sampled_from(self._locked()))
        message = self.model[number]
        assert message.token is not None
        queue = self.dead if message.state == "dead" else self.queue
        transition = queue.settle(message.token, event, self.now_ms)
        assert transition.is_durable == (event is not Event.RELEASE)
        self._apply(queue, transition)
        message.token = None
        if event is Event.COMPLETE:
            del self.model[number]
        elif event is Event.DEFER:
            message.state = "dead-deferred" if message.state == "dead" else "deferred"
        elif event is Event.DEAD_LETTER:
            message.state, message.expires_ms = "dead", None
        elif event is Event.ABANDON:
            self._fail(message)

    @precondition(lambda self: self._locked())
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        message = self.model[data.draw(st.sampled_from(self._locked()))]
        assert message.token is not None
        queue = self.dead if message.state == "dead" else self.queue
        message.locked_until_ms = queue.renew(message.token, self.now_ms)

    @precondition(lambda self: self._scheduled())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self._scheduled()))
        self._apply(self.queue, self.queue.cancel(number))
        del self.model[number]
        with pytest.raises(MessageNotFoundError):
            self.queue.cancel(number)

    @rule(elapsed_ms=st.integers(1, 1500))
    def time_passes(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        for queue in (self.queue, self.dead):
            pending = [queue.advance(self.now_ms)]
            while pending[-1]:  # a returned message may have expired meanwhile
                for transition in pending[-1]:
                    self._apply(queue, transition, reason="TTLExpiredException")
                pending.append(queue.advance(self.now_ms))
        self._model_time()

    @invariant()
    def tables_and_model_agree(self) -> None:
        rows = self.connection.execute(
            "SELECT sequence_number, sub_queue, state, delivery_count FROM message"
        )
        states = {(0, 0): "active", (0, 1): "deferred", (0, 2): "scheduled", (1, 0): "dead"}
        found = {
            row["sequence_number"]: (
                states.get((row["sub_queue"], row["state"]), "dead-deferred"),
                row["delivery_count"],
            )
            for row in rows
        }
        assert found == {number: (item.state, item.count) for number, item in self.model.items()}
        assert len(self.queue) + len(self.dead) == len(self.model)

    def _apply(
        self, queue: MessageQueue, transition: Transition, reason: str | None = None
    ) -> None:
        """Apply a transition as the broker does, without a delay.

        A dead letter that is not the receiver's own has this reason, or has failed too often.
        """
        if transition.action is Action.DEAD_LETTER:
            if transition.after.delivery_count > transition.before.delivery_count:
                reason = "MaxDeliveryCountExceeded"
            assert transition.properties.get("DeadLetterReason") == reason
        if transition.action is Action.ROUTE:
            destination = store.Destination(self.entity, None)
            (enqueued,) = store.move(
                self.connection, self.entity, transition, [destination], self.now_ms
            )
            self.queue.add(enqueued.entry)
            before = self.model.pop(transition.before.sequence_number)
            ttl_ms = before.expires_ms
            expires_ms = None if ttl_ms is None else self.now_ms + ttl_ms
            self.model[enqueued.entry.sequence_number] = Modelled("active", expires_ms=expires_ms)
            return
        if transition.is_durable:
            store.apply(self.connection, self.entity, transition)
        if transition.action is not Action.REMOVE:
            (self.dead if transition.action is Action.DEAD_LETTER else queue).add(transition.after)

    def _model_time(self) -> None:
        for message in self.model.values():
            if message.token is not None and message.locked_until_ms <= self.now_ms:
                message.token = None
                self._fail(message)
        for message in self.model.values():
            is_unlocked = message.token is None and message.state in ("active", "deferred")
            if is_unlocked and self._is_over(message):
                message.state, message.expires_ms = "dead", None

    def _fail(self, message: Modelled) -> None:
        message.count += 1
        if message.count >= MAX_DELIVERY_COUNT and not message.state.startswith("dead"):
            message.state, message.expires_ms = "dead", None

    def _is_over(self, message: Modelled) -> bool:
        return message.expires_ms is not None and message.expires_ms <= self.now_ms

    def _available(self, state: str) -> list[int]:
        return [
            number
            for number, item in self.model.items()
            if item.state == state and item.token is None and not self._is_over(item)
        ]

    def _deferred(self) -> list[int]:
        return self._available("deferred")

    def _scheduled(self) -> list[int]:
        return [number for number, item in self.model.items() if item.state == "scheduled"]

    def _locked(self) -> list[int]:
        return [
            number
            for number, item in self.model.items()
            if item.token is not None and item.state in ("active", "deferred", "dead")
        ]


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40)
