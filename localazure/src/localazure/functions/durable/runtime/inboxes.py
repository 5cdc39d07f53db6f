"""Waiting messages in memory: the inbox table, timers that fired, results of activities."""

from __future__ import annotations

from collections.abc import Sequence

from localazure.functions.durable.store.records import Message


class Inboxes:
    """Waiting messages by receiver, in order of arrival."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Message]] = {}

    def put(self, message: Message) -> None:
        """Add a message."""
        self._waiting.setdefault(message.target, []).append(message)

    def of(self, target: str) -> Sequence[Message]:
        """The waiting messages of a receiver."""
        return self._waiting.get(target, ())

    def remove(self, target: str, messages: Sequence[Message]) -> None:
        """Remove messages that were consumed."""
        gone = set(map(id, messages))
        left = [message for message in self._waiting.get(target, ()) if id(message) not in gone]
        if left:
            self._waiting[target] = left
        else:
            self._waiting.pop(target, None)

    def replace(self, message: Message, other: Message) -> None:
        """Replace a message."""
        waiting = self._waiting[message.target]
        waiting[next(n for n, one in enumerate(waiting) if one is message)] = other

    def targets(self) -> list[str]:
        """Receivers with waiting messages."""
        return list(self._waiting)

    def reset(self) -> None:
        """Remove all messages, to reload the store."""
        self._waiting.clear()

    def clear(self, target: str) -> None:
        """Remove all messages of a receiver that has ended."""
        self._waiting.pop(target, None)
