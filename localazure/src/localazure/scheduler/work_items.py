"""Work items: who waits for a worker, and which worker has what.

An item is with one worker at a time. If the worker's connection ends, another worker gets the item,
under another token. The first answer counts, so a worker that was only cut off may still give it.

A worker that says so gets an item without its long history, for which it asks separately.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.runtime.payloads import PayloadTooLarge

_logger = logging.getLogger(__name__)

# A worker that abandons an item would get it again at once if it is the only one.
ABANDONED_SECONDS: Final = 1.0

# An item of more bytes goes without its history, where a worker asks for that by itself.
LONG_BYTES: Final = 1024 * 1024

# A larger message ends the stream of a worker that has gRPC's default limit. Whether it has, or
# was lost for another reason, nobody says: so many workers in a row are the proof.
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_LOSSES: Final = 3

ORCHESTRATION, ACTIVITY, ENTITY = "Orchestration", "Activity", "Entity"


Answer = asyncio.Future[Sequence[Any]]


class Key(NamedTuple):
    """What decides which workers take an item. Names are matched as workers register them."""

    kind: str
    name: str
    version: str = ""


@dataclass(eq=False, kw_only=True)
class _Item:
    key: Key
    message: pb.WorkItem
    answer: Answer
    size_bytes: int
    losses: int = 0
    """Workers that were lost while they had the item, and its history with it."""
    parts: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    """The parts of answers so far, by each token under which a worker got the item."""


class ConnectedWorker:
    """One worker's stream of work items.

    Args:
        request: its limits and filters.

    Attributes:
        outbox: the items on their way to it; None: the task hub is closed.
        items: the items that it has, by their tokens.
        streams_histories: whether it asks for the history of an item that comes without.
        declined: what it has abandoned, such as versions that it does not have.
    """

    def __init__(self, request: pb.GetWorkItemsRequest) -> None:
        self.outbox = asyncio.Queue[pb.WorkItem | None]()
        self.items: dict[str, _Item] = {}
        self.declined: set[Key] = set()
        self.streams_histories = pb.WORKER_CAPABILITY_HISTORY_STREAMING in request.capabilities
        self._limits = {
            ORCHESTRATION: request.maxConcurrentOrchestrationWorkItems,
            ACTIVITY: request.maxConcurrentActivityWorkItems,
            ENTITY: request.maxConcurrentEntityWorkItems,
        }
        self._filters: dict[tuple[str, str], set[str]] | None = None
        if request.HasField("workItemFilters"):
            filters = request.workItemFilters
            self._filters = {(ENTITY, one.name.lower()): set() for one in filters.entities}
            for kind, wanted in (
                (ORCHESTRATION, filters.orchestrations),
                (ACTIVITY, filters.activities),
            ):
                for one in wanted:
                    self._filters.setdefault((kind, one.name), set()).update(one.versions)

    def wants(self, key: Key) -> bool:
        """Whether its filters name an item; all items if it has none."""
        if self._filters is None:
            return True
        versions = self._filters.get((key.kind, key.name))
        return versions is not None and (not versions or key.version in versions)

    def has_room(self, kind: str) -> bool:
        """Whether it has fewer items of a kind than its limit; 0 is none."""
        limit = self._limits[kind]
        return not limit or limit > sum(one.key.kind == kind for one in self.items.values())


class WorkItems:
    """The work items of one task hub."""

    def __init__(self) -> None:
        self._workers: list[ConnectedWorker] = []
        self._waiting: dict[Key, deque[_Item]] = {}
        self._given: dict[str, _Item] = {}  # by token

    async def run(
        self, key: Key, message: pb.WorkItem, answer: Answer | None = None
    ) -> Sequence[Any]:
        """Have a worker run an item; return its answer, which may have several parts.

        Waits as long as no worker takes it. If the caller is canceled, or sets a result of `answer`
        itself, the worker's answer is ignored.

        Raises:
            PayloadTooLarge: no worker seems to take a message of this size.
        """
        answer = answer or asyncio.get_running_loop().create_future()
        item = _Item(key=key, message=message, answer=answer, size_bytes=message.ByteSize())
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
            if item is not None and worker.items.pop(token, None) is not None:
                worker.declined.add(item.key)
                is_alone = all(item.key in one.declined for one in self._wanting(item.key))
                pause_seconds = ABANDONED_SECONDS if is_alone else 0
                asyncio.get_running_loop().call_later(pause_seconds, self._enqueue, item)
        self._dispatch()

    def connect(self, request: pb.GetWorkItemsRequest) -> ConnectedWorker:
        """Add a worker."""
        worker = ConnectedWorker(request)
        self._workers.append(worker)
        self._dispatch()
        return worker

    def close(self) -> None:
        """End the streams of all workers, which may come back to a task hub of the same name."""
        for worker in self._workers:
            worker.outbox.put_nowait(None)

    def disconnect(self, worker: ConnectedWorker) -> None:
        """Remove a worker; others get its items, before all that wait."""
        self._workers.remove(worker)
        for item in reversed(worker.items.values()):
            item.losses += item.size_bytes > MOST_BYTES and not worker.streams_histories
            if item.losses == MOST_LOSSES and not item.answer.done():
                item.answer.set_exception(_too_large(item))
            self._enqueue(item, first=True)

    def _enqueue(self, item: _Item, *, first: bool = False) -> None:
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

    def _worker_for(self, item: _Item) -> ConnectedWorker | None:
        """The worker with the fewest items, of those that have not declined it where there are.

        If the item is long, those that need not take it in one message come first.
        """
        key, is_long = item.key, item.size_bytes > LONG_BYTES
        wanting = self._wanting(key)
        willing = [worker for worker in wanting if key not in worker.declined] or wanting
        return min(
            (worker for worker in willing if worker.has_room(key.kind)),
            key=lambda worker: (is_long and not worker.streams_histories, len(worker.items)),
            default=None,
        )

    def _wanting(self, key: Key) -> list[ConnectedWorker]:
        return [worker for worker in self._workers if worker.wants(key)]

    def _give(self, item: _Item, worker: ConnectedWorker) -> None:
        token = uuid.uuid4().hex
        message = item.message
        if worker.streams_histories and item.size_bytes > LONG_BYTES:
            message = _without_history(message)
        message.completionToken = token
        item.parts[token] = []
        self._given[token] = worker.items[token] = item
        worker.outbox.put_nowait(message)

    def _drop(self, item: _Item) -> None:
        item.answer.cancel()  # no effect where there is one
        for token in item.parts:
            self._given.pop(token, None)
            for worker in self._workers:
                worker.items.pop(token, None)
        waiting = self._waiting.get(item.key)
        if waiting and item in waiting:
            waiting.remove(item)
        self._dispatch()


def _without_history(message: pb.WorkItem) -> pb.WorkItem:
    if not message.HasField("orchestratorRequest"):
        return message
    shorter = pb.WorkItem()
    shorter.CopyFrom(message)
    del shorter.orchestratorRequest.pastEvents[:]
    shorter.orchestratorRequest.requiresHistoryStreaming = True
    return shorter


def _too_large(item: _Item) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{item.losses} workers in a row were lost when they got the history of {item.key.name!r}: "
        f"with it, the message has {item.size_bytes:,} bytes, and gRPC takes {MOST_BYTES:,} unless "
        "the worker's channel options name more (in Python: max_receive_message_length). Name more "
        "there and rewind, keep large values in blobs and pass their addresses, or continue as new"
    )
