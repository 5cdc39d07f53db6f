"""Entities of the Durable Task SDK for Python on the scheduler."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from durabletask import task
from durabletask.client import EntityQuery
from durabletask.entities import DurableEntity, EntityInstanceId

from harness.scheduler import Scheduler, scheduling, working
from harness.waiting import eventually

Context = task.OrchestrationContext
A, B = EntityInstanceId("Account", "a"), EntityInstanceId("Account", "b")


class Account(DurableEntity):
    def add(self, amount: int) -> int:
        if amount < 0:
            raise ValueError("too little")
        self.set_state(self.get_state(int, 0) + amount)
        return self.get_state(int, 0)

    def get(self, _: Any) -> int:
        return self.get_state(int, 0)

    def put(self, amount: int) -> None:
        self.set_state(amount)

    def tell(self, _: Any) -> None:
        self.signal_entity(B, "add", 5)
        self.schedule_new_orchestration("adding", 1, "started")


def adding(ctx: Context, amount: int) -> Any:
    return (yield ctx.call_entity(B, "add", amount))


def moving(ctx: Context, amount: int) -> Any:
    """Moves an amount from one account to another, by calls that others could come between."""
    with (yield ctx.lock_entities([B, A])):
        before = yield ctx.call_entity(A, "get")
        yield ctx.call_entity(A, "put", before - amount)
        after = yield ctx.call_entity(B, "get")
        yield ctx.call_entity(B, "put", after + amount)


def holding(ctx: Context, _: Any) -> Any:
    with (yield ctx.lock_entities([A, B])):
        ctx.set_custom_status("holds")
        yield ctx.wait_for_external_event("never")


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncGenerator[Scheduler]:
    async with scheduling(tmp_path) as running:
        yield running


async def state(scheduler: Scheduler, entity: EntityInstanceId) -> Any:
    found = await scheduler.client.get_entity(entity)
    return None if found is None else found.get_state(int)


async def until(scheduler: Scheduler, entity: EntityInstanceId, wanted: int | None) -> None:
    async def has_it() -> bool:
        return await state(scheduler, entity) == wanted

    await eventually(has_it)


async def test_signals_calls_and_what_an_entity_sends(scheduler: Scheduler) -> None:
    at = datetime.now(UTC) + timedelta(milliseconds=300)
    await scheduler.client.signal_entity(A, "add", 1, signal_time=at)
    await scheduler.client.signal_entity(A, "tell")
    async with working(scheduler.address, adding, entities=(Account,)):
        await until(scheduler, B, 6)
        assert await scheduler.output("started") == 6
        await until(scheduler, A, 1)
        assert datetime.now(UTC) >= at
        instance_id = await scheduler.client.schedule_new_orchestration(adding, input=-1)
        failure = (await scheduler.ended(instance_id)).failure_details
        assert failure is not None
        assert "too little" in failure.message
        await scheduler.client.signal_entity(B, "delete")
        await until(scheduler, B, None)
    (only,) = await scheduler.client.get_all_entities(EntityQuery(include_state=True))
    assert (only.id, only.get_state(int)) == (A, 1)


async def test_an_id_that_is_too_long_is_refused(scheduler: Scheduler) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT"):
        await scheduler.client.signal_entity(EntityInstanceId("Account", 100 * "a"), "add", 1)


async def test_locks_keep_others_out(scheduler: Scheduler) -> None:
    async with working(scheduler.address, moving, entities=(Account,)):
        await scheduler.client.signal_entity(A, "put", 10)
        ids = [await scheduler.client.schedule_new_orchestration(moving, input=1) for _ in range(5)]
        for instance_id in ids:
            await scheduler.output(instance_id)
        assert [await state(scheduler, A), await state(scheduler, B)] == [5, 5]


async def test_a_terminated_orchestration_leaves_no_lock(scheduler: Scheduler) -> None:
    async with working(scheduler.address, holding, entities=(Account,)):
        instance_id = await scheduler.client.schedule_new_orchestration(holding)
        await scheduler.until_status(instance_id, "holds")
        await scheduler.client.signal_entity(A, "put", 3)
        (locked, _) = await scheduler.client.get_all_entities(EntityQuery(include_transient=True))
        assert vars(locked)["_locked_by"] == instance_id  # its accessor takes it for an entity
        await scheduler.client.terminate_orchestration(instance_id)
        await until(scheduler, A, 3)
