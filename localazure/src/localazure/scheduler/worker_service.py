"""What workers ask for and answer, by gRPC."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import durabletask.internal.orchestrator_service_pb2 as pb
import grpc
from google.protobuf.message import Message

from localazure.functions.durable.protocol.calls import HasHubs, Write, streaming, unary
from localazure.functions.durable.protocol.client_service import stored_history
from localazure.functions.durable.protocol.history_messages import in_chunks
from localazure.scheduler.hubs import Hub
from localazure.scheduler.work_items import ProtocolConnection

# A worker of the Python SDK takes a stream for dead after 120 s without a message.
PING_SECONDS: Final = 30.0
_PING: Final = pb.WorkItem(healthPing=pb.HealthPing())


def _abandon(response: type[Message]) -> Any:
    """A method that takes back a work item, such as one of a version that the worker lacks."""

    @unary
    async def call(_self: HasHubs, request: Any, hub: Hub) -> Message:
        hub.items.abandon(request.completionToken)
        return response()

    return call


class WorkerService(HasHubs):
    """The part of the service for workers."""

    @streaming
    async def GetWorkItems(self, request: pb.GetWorkItemsRequest, hub: Hub, write: Write) -> None:
        """Send work items until the worker leaves."""
        worker = hub.items.connect(ProtocolConnection(request))
        item: pb.WorkItem | None = _PING
        try:
            while item is not None:
                await write(item)
                try:
                    item = await asyncio.wait_for(worker.outbox.get(), PING_SECONDS)
                except TimeoutError:
                    item = _PING
        except grpc.aio.InternalError:
            pass  # the worker has left, or takes no message of this size
        finally:
            hub.items.disconnect(worker)

    @streaming
    async def StreamInstanceHistory(
        self, request: pb.StreamInstanceHistoryRequest, hub: Hub, write: Write
    ) -> None:
        """Send a history in chunks: that of a work item, or the stored one."""
        past = None
        if request.forWorkItemProcessing:
            past = hub.workers.past(request.instanceId, request.executionId.value)
        for chunk in in_chunks(stored_history(hub, request.instanceId) if past is None else past):
            await write(chunk)

    @unary
    async def CompleteOrchestratorTask(self, request: Any, hub: Hub) -> pb.CompleteTaskResponse:
        """Take the result of a work item. That of an orchestrator may come in parts."""
        is_partial = isinstance(request, pb.OrchestratorResponse) and request.isPartial
        hub.items.complete(request.completionToken, request, is_partial=is_partial)
        return pb.CompleteTaskResponse()

    CompleteActivityTask = CompleteOrchestratorTask
    CompleteEntityTask = CompleteOrchestratorTask

    AbandonTaskOrchestratorWorkItem = _abandon(pb.AbandonOrchestrationTaskResponse)
    AbandonTaskActivityWorkItem = _abandon(pb.AbandonActivityTaskResponse)
    AbandonTaskEntityWorkItem = _abandon(pb.AbandonEntityTaskResponse)
