from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from handlers.notify import dead_letter_queue
from handlers.notify.dead_letter_queue import (
    SCAN_DEADLINE_SECONDS,
    SCAN_LIMIT_MESSAGES,
    DeadLetters,
)


@dataclass(frozen=True)
class Letter:
    sequence_number: int


class Receiver:
    """An endless dead-letter queue, which returns as many messages as are requested."""

    def __init__(self, *, lost: frozenset[Letter] = frozenset()) -> None:
        self.given: list[Letter] = []
        self.completed: list[Letter] = []
        self.abandoned: list[Letter] = []
        self.lost = lost

    def peek_messages(self, max_message_count: int, *, sequence_number: int) -> list[Letter]:
        return [Letter(sequence_number + more) for more in range(max_message_count)]

    def receive_messages(self, max_message_count: int, max_wait_time: float) -> list[Letter]:
        assert max_wait_time > 0
        batch = [Letter(len(self.given) + 1 + more) for more in range(max_message_count)]
        self.given += batch
        return batch

    def complete_message(self, message: Letter) -> None:
        if message in self.lost:
            raise MessageLockLostError(message="lost", error=None)
        self.completed.append(message)

    def abandon_message(self, message: Letter) -> None:
        self.abandoned.append(message)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock: the last item is the current time."""
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
        seconds.append(seconds[-1] + 1.0)  # handling each letter takes 1 s
    assert len(receiver.completed) == SCAN_DEADLINE_SECONDS
    letters.release()
    assert {*receiver.completed, *receiver.abandoned} == {*receiver.given}


@pytest.mark.usefixtures("seconds")
def test_a_walk_ends_after_so_many_messages() -> None:
    receiver = Receiver()
    assert len(list(walk(receiver))) == SCAN_LIMIT_MESSAGES


@pytest.mark.usefixtures("seconds")
def test_a_letter_whose_lock_was_lost_stays_for_the_next_walk() -> None:
    receiver = Receiver(lost=frozenset({Letter(1)}))
    letters = walk(receiver)
    for letter in letters:
        letters.take(letter)
        if len(receiver.completed) == 2:
            break
    letters.release()
    assert receiver.completed == [Letter(2), Letter(3)]
    assert Letter(1) not in receiver.abandoned
