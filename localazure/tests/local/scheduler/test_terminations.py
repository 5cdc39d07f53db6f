"""Terminations that the SDK for Python does not use."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from durabletask import task
from durabletask.entities import DurableEntity, EntityInstanceId
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.orchestrator_service_pb2_grpc import TaskHubSidecarServiceStub

from harness.scheduler import Scheduler, scheduling, working
from localazure import limits


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncGenerator[Scheduler]:
    async with scheduling(tmp_path) as running:
        yield running


class Account(DurableEntity):
    def add(self, amount: int) -> None:
        self.set_state(amount)


def short(ctx: task.OrchestrationContext, _: Any) -> Any:
    return ctx.instance_id


def waiting(ctx: task.OrchestrationContext, _: Any) -> Any:
    return (yield ctx.wait_for_external_event("go"))


def parent(ctx: task.OrchestrationContext, _: Any) -> Any:
    ctx.set_custom_status("waits")
    return (yield ctx.call_sub_orchestrator(waiting, instance_id="below"))


def locking(ctx: task.OrchestrationContext, _: Any) -> Any:
    with (yield ctx.lock_entities([EntityInstanceId("Account", "a")])):
        ctx.set_custom_status("holds")
        yield ctx.wait_for_external_event("never")


async def skip(scheduler: Scheduler, ids: Sequence[str]) -> list[str]:
    """Terminate orchestrations at once; return those that are not terminated."""
    async with grpc.aio.insecure_channel(scheduler.address) as channel:
        request = pb.SkipGracefulOrchestrationTerminationsRequest(
            instanceBatch=pb.InstanceBatch(instanceIds=ids), reason={"value": "over"}
        )
        stub = TaskHubSidecarServiceStub(channel)
        answer = await stub.SkipGracefulOrchestrationTerminations(request)
        return list(answer.unterminatedInstanceIds)


async def test_orchestrations_are_terminated_at_once(scheduler: Scheduler) -> None:
    client = scheduler.client
    later = datetime.now(UTC) + timedelta(hours=1)
    await client.schedule_new_orchestration(short, instance_id="pending", start_at=later)
    functions = (short, waiting, parent, locking)
    async with working(scheduler.address, *functions, entities=(Account,)):
        for orchestrator in (short, parent, locking):
            await client.schedule_new_orchestration(orchestrator, instance_id=orchestrator.__name__)
        await client.suspend_orchestration("parent")
        await scheduler.ended("short")
        await scheduler.until_status("parent", "waits")
        await scheduler.until_status("locking", "holds")
        others = ["short", "locking", "@account@a", "missing"]
        assert await skip(scheduler, ["pending", "parent", *others]) == others
        for one in ("pending", "parent"):
            state = await scheduler.state(one)
            assert (state.runtime_status.name, state.serialized_output) == (
                "TERMINATED",
                json.dumps("over"),
            )
        assert (await scheduler.state("below")).runtime_status.name == "RUNNING"


@pytest.mark.parametrize("count", [0, limits.DURABLE_TERMINATIONS.value + 1])
async def test_a_request_has_a_number_of_orchestrations(scheduler: Scheduler, count: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=f"1 to 500 orchestrations, not {count}"):
        await skip(scheduler, ["one"] * count)
