"""The work items of the Durable Task protocol, and the workers that take them.

A worker that says so gets an item without its long history, for which it asks separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.functions.durable.runtime.payloads import PayloadTooLarge
from localazure.functions.durable.runtime.work_items import ConnectedWorker, WorkItem, WorkItems

# An item of more bytes goes without its history, where a worker asks for that by itself.
LONG_BYTES: Final = 1024 * 1024

# A larger message ends the stream of a worker that has gRPC's default limit. Whether it has, or
# was lost for another reason, nobody says: so many workers in a row are the proof.
MOST_BYTES: Final = 4 * 1024 * 1024
MOST_LOSSES: Final = 3

ORCHESTRATION, ACTIVITY, ENTITY = "Orchestration", "Activity", "Entity"


class ProtocolConnection(ConnectedWorker):
    """One worker's stream of work items.

    Args:
        request: its limits and filters.

    Attributes:
        streams_histories: whether it asks for the history of an item that comes without.
    """

    def __init__(self, request: pb.GetWorkItemsRequest) -> None:
        limits = {
            ORCHESTRATION: request.maxConcurrentOrchestrationWorkItems,
            ACTIVITY: request.maxConcurrentActivityWorkItems,
            ENTITY: request.maxConcurrentEntityWorkItems,
        }
        super().__init__(limits, _filters(request))
        self.streams_histories = pb.WORKER_CAPABILITY_HISTORY_STREAMING in request.capabilities


def _filters(request: pb.GetWorkItemsRequest) -> dict[tuple[str, str], set[str]] | None:
    if not request.HasField("workItemFilters"):
        return None
    wanted = request.workItemFilters
    filters: dict[tuple[str, str], set[str]] = {
        (ENTITY, one.name.lower()): set() for one in wanted.entities
    }
    for kind, some in ((ORCHESTRATION, wanted.orchestrations), (ACTIVITY, wanted.activities)):
        for one in some:
            filters.setdefault((kind, one.name), set()).update(one.versions)
    return filters


@dataclass(eq=False, kw_only=True)
class ProtocolItem(WorkItem[ProtocolConnection]):
    """A work item as a message of the protocol.

    If no worker seems to take a message of its size, its answer is a PayloadTooLarge.
    """

    content: pb.WorkItem
    losses: int = 0
    """Workers that were lost while they had the item, and its history with it."""

    @cached_property
    def _size_bytes(self) -> int:
        return self.content.ByteSize()

    def message(self, worker: ProtocolConnection, token: str) -> pb.WorkItem:
        """The message with a token, and without a long history if the worker asks for it."""
        message = self.content
        if worker.streams_histories and self._size_bytes > LONG_BYTES:
            message = _without_history(message)
        message.completionToken = token
        return message

    def is_hard_for(self, worker: ProtocolConnection) -> bool:
        """Whether the worker must take a long item in one message."""
        return self._size_bytes > LONG_BYTES and not worker.streams_histories

    def on_lost(self, worker: ProtocolConnection) -> None:
        """Give up after too many workers."""
        self.losses += self._size_bytes > MOST_BYTES and not worker.streams_histories
        if self.losses == MOST_LOSSES and not self.answer.done():
            self.answer.set_exception(self._too_large())

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"{self.losses} workers in a row were lost when they got the history of "
            f"{self.key.name!r}: with it, the message has {self._size_bytes:,} bytes, and gRPC "
            f"takes {MOST_BYTES:,} unless the worker's channel options name more (in Python: "
            "max_receive_message_length). Name more there and rewind, keep large values in blobs "
            "and pass their addresses, or continue as new"
        )


ProtocolItems = WorkItems[ProtocolConnection]


def _without_history(message: pb.WorkItem) -> pb.WorkItem:
    if not message.HasField("orchestratorRequest"):
        return message
    shorter = pb.WorkItem()
    shorter.CopyFrom(message)
    del shorter.orchestratorRequest.pastEvents[:]
    shorter.orchestratorRequest.requiresHistoryStreaming = True
    return shorter
