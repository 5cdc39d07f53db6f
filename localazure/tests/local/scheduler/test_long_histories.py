"""Histories that are too long for a message, with workers of the Durable Task SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from durabletask import history, task
from durabletask.client import OrchestrationStatus
from durabletask.grpc_options import GrpcChannelOptions, GrpcWorkerResiliencyOptions
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.worker import TaskHubGrpcWorker

from harness.scheduler import Scheduler, scheduling, working

PIECE_BYTES = 900_000  # gRPC takes messages of 4 MB


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncGenerator[Scheduler]:
    async with scheduling(tmp_path) as running:
        yield running


def piece(_: Any, size_bytes: int) -> str:
    return "x" * size_bytes


def one_by_one(ctx: task.OrchestrationContext, count: int) -> Any:
    total = 0
    for _ in range(count):
        total += len((yield ctx.call_activity(piece, input=PIECE_BYTES)))
    return total


def at_once(ctx: task.OrchestrationContext, count: int) -> Any:
    pieces = yield task.when_all([ctx.call_activity(piece, input=PIECE_BYTES)] * count)
    return len(pieces)


def short(ctx: task.OrchestrationContext, _: Any) -> Any:
    return (yield ctx.call_activity(piece, input=3))


class StreamingWorker(TaskHubGrpcWorker):
    """Does what the worker of the .NET SDK does: it asks for a history that it lacks."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.streamed = 0
        self.add_capability(pb.WORKER_CAPABILITY_HISTORY_STREAMING)

    def _execute_orchestrator(
        self,
        req: pb.OrchestratorRequest,
        stub: Any,
        completionToken: Any,  # noqa: N803
    ) -> None:
        if req.requiresHistoryStreaming:
            assert not req.pastEvents
            wanted = pb.StreamInstanceHistoryRequest(
                instanceId=req.instanceId, executionId=req.executionId, forWorkItemProcessing=True
            )
            for chunk in stub.StreamInstanceHistory(wanted):
                req.pastEvents.extend(chunk.events)
            self.streamed += 1
        super()._execute_orchestrator(req, stub, completionToken)


reconnects_soon = partial(
    TaskHubGrpcWorker,
    resiliency_options=GrpcWorkerResiliencyOptions(reconnect_backoff_base_seconds=0.01),
)
takes_long_messages = partial(
    TaskHubGrpcWorker, channel_options=GrpcChannelOptions(max_receive_message_length=-1)
)


async def test_a_worker_asks_for_a_long_history(scheduler: Scheduler) -> None:
    functions = (one_by_one, at_once, piece)
    async with working(scheduler.address, *functions, make=StreamingWorker) as worker:
        first = await scheduler.client.schedule_new_orchestration(one_by_one, input=6)
        second = await scheduler.client.schedule_new_orchestration(at_once, input=6)
        assert await scheduler.output(first) == 6 * PIECE_BYTES
        assert await scheduler.output(second) == 6
    assert isinstance(worker, StreamingWorker)
    assert worker.streamed >= 4
    events = await scheduler.client.get_orchestration_history(first)
    assert sum(isinstance(one, history.TaskCompletedEvent) for one in events) == 6


async def test_a_history_that_the_workers_cannot_take_fails_and_can_be_rewound(
    scheduler: Scheduler,
) -> None:
    async with working(scheduler.address, one_by_one, short, piece, make=reconnects_soon):
        instance_id = await scheduler.client.schedule_new_orchestration(one_by_one, input=6)
        state = await scheduler.ended(instance_id)
        assert state.runtime_status is OrchestrationStatus.FAILED
        assert state.failure_details is not None
        assert "max_receive_message_length" in state.failure_details.message
        other = await scheduler.client.schedule_new_orchestration(short)
        assert await scheduler.output(other) == "xxx"
    async with working(scheduler.address, one_by_one, piece, make=takes_long_messages):
        await scheduler.client.rewind_orchestration(instance_id)
        assert await scheduler.output(instance_id) == 6 * PIECE_BYTES
