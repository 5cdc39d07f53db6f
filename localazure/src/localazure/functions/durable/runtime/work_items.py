"""Work items: who waits for a worker, and which worker has what.

An item is with one worker at a time. If the worker's connection ends, another worker gets the item,
under another token. The first answer counts, so a worker that was only cut off may still give it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, TypeVar

_logger = logging.getLogger(__name__)

# A worker that abandons an item would get it again at once if it is the only one.
ABANDONED_SECONDS: Final = 1.0

Answer = asyncio.Future[Sequence[Any]]


class Key(NamedTuple):
    """What decides which workers take an item. Names are matched as workers register them."""

    kind: str
    name: str
    version: str = ""


class ConnectedWorker:
    """One worker's stream of work items.

    Args:
        limits: the number of items of each kind that it has at most; 0: no limit.
        filters: the versions that it takes, by kind and name; an empty set: all; None: all items.

    Attributes:
        outbox: the messages on their way to it; None: the task hub is closed.
        items: the items that it has, by their tokens; changed by `take` and `release`.
        declined: what it has abandoned, such as versions that it does not have.
        is_leaving: whether it takes no further items.
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        filters: Mapping[tuple[str, str], set[str]] | None = None,
    ) -> None:
        self.outbox = asyncio.Queue[Any]()
        self.items: dict[str, WorkItem[Any]] = {}
        self.declined: set[Key] = set()
        self.is_leaving = False
        self._counts = Counter[str]()
        self._limits = limits
        self._filters = filters

    def take(self, token: str, item: WorkItem[Any]) -> None:
        """Add an item."""
        self.items[token] = item
        self._counts[item.key.kind] += 1

    def release(self, token: str) -> bool:
        """Remove an item; return whether it had it."""
        item = self.items.pop(token, None)
        if item is not None:
            self._counts[item.key.kind] -= 1
        return item is not None

    def wants(self, key: Key) -> bool:
        """Whether its filters name an item."""
        if self.is_leaving or self._filters is None:
            return not self.is_leaving
        versions = self._filters.get((key.kind, key.name))
        return versions is not None and (not versions or key.version in versions)

    def has_room(self, kind: str) -> bool:
        """Whether it has fewer items of a kind than its limit."""
        limit = self._limits[kind]
        return not limit or limit > self._counts[kind]


Worker = TypeVar("Worker", bound=ConnectedWorker)


@dataclass(eq=False, kw_only=True)
class WorkItem(ABC, Generic[Worker]):
    """What one worker is to do.

    Attributes:
        answer: the parts of the answer. A result that is set before makes a worker's ignored.
        parts: the parts of answers so far, by each token under which a worker got the item.
    """

    key: Key
    answer: Answer = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    parts: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    @abstractmethod
    def message(self, worker: Worker, token: str) -> Any:
        """The item as a worker gets it; the worker names the token in its answer."""

    def is_hard_for(self, worker: Worker) -> bool:
        """Whether other workers come first."""
        del worker
        return False

    def on_lost(self, worker: Worker) -> None:
        """Note that a worker that had it was lost; an exception as its answer ends it."""


class WorkItems(Generic[Worker]):
    """The work items of one task hub."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._waiting: dict[Key, deque[WorkItem[Worker]]] = {}
        self._given: dict[str, WorkItem[Worker]] = {}  # by token

    async def run(self, item: WorkItem[Worker]) -> Sequence[Any]:
        """Have a worker run an item; return its answer, which may have several parts.

        Waits as long as no worker takes it. If the caller is canceled, the answer is ignored.
        """
        self._enqueue(item)
        try:
            return await item.answer
        finally:
            self._drop(item)

    def complete(self, token: str, answer: Any, *, is_partial: bool = False) -> None:
        """Take a worker's answer, or a part of one that others follow."""
        item = self._given.get(token)
        if item is None:
            _logger.info("an answer is ignored: its work item has ended")
            return
        item.parts[token].append(answer)
        if not is_partial and not item.answer.done():
            item.answer.set_result(item.parts[token])

    def abandon(self, token: str) -> None:
        """Give an item back; another worker gets it, or after a pause the same one."""
        item = self._given.pop(token, None)
        for worker in self._workers:
            if item is not None and worker.release(token):
                worker.declined.add(item.key)
                is_alone = all(item.key in one.declined for one in self._wanting(item.key))
                pause_seconds = ABANDONED_SECONDS if is_alone else 0
                asyncio.get_running_loop().call_later(pause_seconds, self._enqueue, item)
        self._dispatch()

    def connect(self, worker: Worker) -> Worker:
        """Add a worker, and return it."""
        self._workers.append(worker)
        self._dispatch()
        return worker

    def close(self) -> None:
        """End the streams of all workers, which may come back to a task hub of the same name."""
        for worker in self._workers:
            worker.outbox.put_nowait(None)

    def disconnect(self, worker: Worker) -> None:
        """Remove a worker; others get its items, before all that wait."""
        self._workers.remove(worker)
        for item in reversed(worker.items.values()):
            item.on_lost(worker)
            self._enqueue(item, first=True)

    def _enqueue(self, item: WorkItem[Worker], *, first: bool = False) -> None:
        if item.answer.done():
            return
        waiting = self._waiting.setdefault(item.key, deque())
        if first:
            waiting.appendleft(item)
        else:
            waiting.append(item)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting items to workers, one of each kind and name in turn."""
        is_given = True
        while is_given:
            is_given = False
            for key, waiting in list(self._waiting.items()):
                if waiting and (worker := self._worker_for(waiting[0])) is not None:
                    self._give(waiting.popleft(), worker)
                    is_given = True
                if not waiting:
                    del self._waiting[key]

    def _worker_for(self, item: WorkItem[Worker]) -> Worker | None:
        """The worker with the fewest items, of those that have not declined it where there are.

        Those for which the item is hard come last.
        """
        key = item.key
        wanting = self._wanting(key)
        willing = [worker for worker in wanting if key not in worker.declined] or wanting
        return min(
            (worker for worker in willing if worker.has_room(key.kind)),
            key=lambda worker: (item.is_hard_for(worker), len(worker.items)),
            default=None,
        )

    def _wanting(self, key: Key) -> list[Worker]:
        return [worker for worker in self._workers if worker.wants(key)]

    def _give(self, item: WorkItem[Worker], worker: Worker) -> None:
        token = uuid.uuid4().hex
        item.parts[token] = []
        self._given[token] = item
        worker.take(token, item)
        worker.outbox.put_nowait(item.message(worker, token))

    def _drop(self, item: WorkItem[Worker]) -> None:
        item.answer.cancel()  # no effect where there is one
        for token in item.parts:
            self._given.pop(token, None)
            for worker in self._workers:
                worker.release(token)
        waiting = self._waiting.get(item.key)
        if waiting and item in waiting:
            waiting.remove(item)
        self._dispatch()
