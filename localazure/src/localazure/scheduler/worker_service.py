"""What workers ask for and answer, by gRPC."""

from __future__ import annotations

import asyncio
from typing import Final

import durabletask.internal.orchestrator_service_pb2 as pb

from localazure.scheduler.calls import HasHubs, Write, streaming, unary
from localazure.scheduler.hubs import Hub

# A worker of the Python SDK takes a stream for dead after 120 s without a message.
PING_SECONDS: Final = 30.0


class WorkerService(HasHubs):
    """The part of the service for workers."""

    @streaming
    async def GetWorkItems(self, request: pb.GetWorkItemsRequest, hub: Hub, write: Write) -> None:
        """Send work items until the worker leaves."""
        worker = hub.items.connect(request)
        try:
            while True:
                try:
                    item = await asyncio.wait_for(worker.outbox.get(), PING_SECONDS)
                except TimeoutError:
                    item = pb.WorkItem(healthPing=pb.HealthPing())
                await write(item)
        finally:
            hub.items.disconnect(worker)

    @unary
    async def CompleteOrchestratorTask(
        self, request: pb.OrchestratorResponse, hub: Hub
    ) -> pb.CompleteTaskResponse:
        """Take the actions of an orchestrator."""
        hub.items.complete(request.completionToken, request, is_partial=request.isPartial)
        return pb.CompleteTaskResponse()

    @unary
    async def CompleteActivityTask(
        self, request: pb.ActivityResponse, hub: Hub
    ) -> pb.CompleteTaskResponse:
        """Take the result of an activity."""
        hub.items.complete(request.completionToken, request)
        return pb.CompleteTaskResponse()

    @unary
    async def CompleteEntityTask(
        self, request: pb.EntityBatchResult, hub: Hub
    ) -> pb.CompleteTaskResponse:
        """Take the results of operations."""
        hub.items.complete(request.completionToken, request)
        return pb.CompleteTaskResponse()

    @unary
    async def AbandonTaskOrchestratorWorkItem(
        self, request: pb.AbandonOrchestrationTaskRequest, hub: Hub
    ) -> pb.AbandonOrchestrationTaskResponse:
        """Take back an orchestrator, such as one of a version that the worker does not have."""
        hub.items.abandon(request.completionToken)
        return pb.AbandonOrchestrationTaskResponse()

    @unary
    async def AbandonTaskActivityWorkItem(
        self, request: pb.AbandonActivityTaskRequest, hub: Hub
    ) -> pb.AbandonActivityTaskResponse:
        """Take back an activity."""
        hub.items.abandon(request.completionToken)
        return pb.AbandonActivityTaskResponse()

    @unary
    async def AbandonTaskEntityWorkItem(
        self, request: pb.AbandonEntityTaskRequest, hub: Hub
    ) -> pb.AbandonEntityTaskResponse:
        """Take back operations of an entity."""
        hub.items.abandon(request.completionToken)
        return pb.AbandonEntityTaskResponse()
