"""Tasks that an orchestrator can await, and their compounds."""

from __future__ import annotations

from collections.abc import Callable


class Awaited:
    """A task that an orchestrator can await."""

    __slots__ = ("_then", "done", "failed")

    def __init__(self) -> None:
        self.done = False
        self.failed = False
        self._then: list[Callable[[], None]] = []

    def complete(self, *, failed: bool = False) -> None:
        """Complete the task, once, and notify waiters in the order of their registration."""
        if not self.done:
            self.done, self.failed = True, failed
            for callback in self._then:
                callback()

    def then(self, callback: Callable[[], None]) -> None:
        """Call `callback` on completion; at once if the task has completed."""
        if self.done:
            callback()
        else:
            self._then.append(callback)


def all_of(parts: list[Awaited]) -> Awaited:
    """Return a task that ends when all parts have ended, failed or not (.NET's Task.WhenAll)."""
    whole = Awaited() if parts else ended()
    left = len(parts)

    def one_less() -> None:
        nonlocal left
        left -= 1
        if not left:
            whole.complete()

    for part in parts:
        part.then(one_less)
    return whole


def any_of(parts: list[Awaited]) -> Awaited:
    """Return a task that ends when the first part ends; without parts, at once."""
    whole = Awaited() if parts else ended()
    for part in parts:
        part.then(whole.complete)
    return whole


def ended() -> Awaited:
    """Return a completed task."""
    done = Awaited()
    done.complete()
    return done
