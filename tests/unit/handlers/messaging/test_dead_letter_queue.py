from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from handlers.messaging import dead_letter_queue
from handlers.messaging.dead_letter_queue import (
    SCAN_DEADLINE_SECONDS,
    SCAN_LIMIT_MESSAGES,
    DeadLetters,
)


class Receiver:
    """A dead-letter queue that gives as many messages as it is asked for, for ever."""

    def __init__(self, *, lost: frozenset[str] = frozenset()) -> None:
        self.given: list[str] = []
        self.completed: list[str] = []
        self.abandoned: list[str] = []
        self.lost = lost

    def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[str]:
        assert max_wait_time > 0
        batch = [f"m{len(self.given) + number}" for number in range(max_message_count)]
        self.given += batch
        return batch

    def complete_message(self, message: str) -> None:
        if message in self.lost:
            raise MessageLockLostError(message="lost", error=None)
        self.completed.append(message)

    def abandon_message(self, message: str) -> None:
        self.abandoned.append(message)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: its last item is now."""
    now = [0.0]
    monkeypatch.setattr(dead_letter_queue.time, "monotonic", lambda: now[-1])
    return now


def walk(receiver: Receiver) -> DeadLetters:
    client: Any = receiver
    return DeadLetters(client)


def test_a_walk_ends_in_the_middle_of_a_batch_when_its_locks_may_end(seconds: list[float]) -> None:
    receiver = Receiver()
    letters = walk(receiver)
    for letter in letters:
        letters.take(letter)
        seconds.append(seconds[-1] + 1.0)  # what is done about each takes a second
    assert len(receiver.completed) == SCAN_DEADLINE_SECONDS
    letters.release()
    assert sorted(receiver.completed + receiver.abandoned) == sorted(receiver.given)


@pytest.mark.usefixtures("seconds")
def test_a_walk_ends_after_so_many_messages() -> None:
    receiver = Receiver()
    assert len(list(walk(receiver))) == SCAN_LIMIT_MESSAGES


@pytest.mark.usefixtures("seconds")
def test_a_letter_whose_lock_was_lost_stays_for_the_next_walk() -> None:
    receiver = Receiver(lost=frozenset({"m0"}))
    letters = walk(receiver)
    for letter in letters:
        letters.take(letter)
        if len(receiver.completed) == 2:
            break
    letters.release()
    assert receiver.completed == ["m1", "m2"]
    assert "m0" not in receiver.abandoned
