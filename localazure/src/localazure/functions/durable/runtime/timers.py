"""Durable timers in memory: a heap ordered by due time, loaded from the store at start."""

from __future__ import annotations

import heapq
from datetime import datetime

from localazure.functions.durable.engine.history import parse_timestamp
from localazure.functions.durable.store.records import Timer

# Entries of removed timers stay in the heap until they are due or outnumber the others.
_SLACK = 64


class TimerQueue:
    """Timers that have not fired, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, str, int]] = []
        self._timers: dict[str, dict[int, Timer]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, timer: Timer) -> None:
        """Add a timer."""
        self._timers.setdefault(timer.execution_id, {})[timer.event_id] = timer
        self._count += 1
        heapq.heappush(
            self._heap, (parse_timestamp(timer.fire_at), timer.execution_id, timer.event_id)
        )

    def forget(self, execution_id: str) -> None:
        """Drop all timers of an execution that is over."""
        self._count -= len(self._timers.pop(execution_id, ()))
        if len(self._heap) > 2 * self._count + _SLACK:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)

    def next_due(self) -> datetime | None:
        """The due time of the earliest timer."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: datetime) -> list[Timer]:
        """Remove and return the timers that are due."""
        due: list[Timer] = []
        while (earliest := self.next_due()) is not None and earliest <= now:
            _, execution_id, event_id = heapq.heappop(self._heap)
            timers = self._timers[execution_id]
            due.append(timers.pop(event_id))
            self._count -= 1
            if not timers:
                del self._timers[execution_id]
        return due

    def _is_live(self, entry: tuple[datetime, str, int]) -> bool:
        _, execution_id, event_id = entry
        return event_id in self._timers.get(execution_id, ())
