"""Clients' knowledge of the broker, and the invariants that follow from it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


def _ids() -> set[str]:
    return set[str]()


@dataclass
class Journal:
    """The messages of one place that messages are received from, by their ids.

    Something begun without an answer is in doubt: it may have happened or not.
    """

    place: str
    begun: set[str] = field(default_factory=_ids)
    """Sends that were begun."""
    sent: set[str] = field(default_factory=_ids)
    """Acknowledged sends."""
    removing: set[str] = field(default_factory=_ids)
    """Settlements and cancellations that were begun."""
    removed: set[str] = field(default_factory=_ids)
    """Acknowledged ones: these messages may never come again."""
    remaining: list[str] = field(default_factory=list[str])
    """The messages at the end."""
    faults: list[str] = field(default_factory=list[str])

    @property
    def in_doubt(self) -> set[str]:
        """Sends without an answer."""
        return self.begun - self.sent

    def receive(self, identity: str) -> None:
        """A message came."""
        if identity in self.removed:
            self.faults.append(f"{self.place}: {identity} came back")
        if identity not in self.begun:
            self.faults.append(f"{self.place}: {identity} was never sent")

    def end(self, remaining: Iterable[str]) -> None:
        """Everything that was left has been received: compare it with what is known."""
        self.remaining = list(remaining)
        for identity in self.remaining:
            self.receive(identity)
        self.faults += [
            f"{self.place}: {identity} is there {count} times"
            for identity, count in Counter(self.remaining).items()
            if count > 1
        ]
        self.faults += [
            f"{self.place}: {identity} is lost"
            for identity in sorted(self.sent - self.removed - self.removing - {*self.remaining})
        ]
