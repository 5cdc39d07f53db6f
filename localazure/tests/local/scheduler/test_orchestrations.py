"""Programs of the Durable Task SDK for Python on the scheduler."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from durabletask import history, task
from durabletask.azuremanaged.client import AsyncDurableTaskSchedulerClient
from durabletask.azuremanaged.worker import DurableTaskSchedulerWorker
from durabletask.client import OrchestrationQuery, OrchestrationStatus
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal.orchestrator_service_pb2_grpc import TaskHubSidecarServiceStub
from durabletask.worker import (
    TaskHubGrpcWorker,
    VersionFailureStrategy,
    VersioningOptions,
    VersionMatchStrategy,
)

from harness.scheduler import QUIET, Scheduler, scheduling, working
from harness.waiting import eventually
from localazure import limits

Context = task.OrchestrationContext
ANY_ID = pb.OrchestrationIdReusePolicy(
    replaceableStatus=[
        pb.ORCHESTRATION_STATUS_RUNNING,
        pb.ORCHESTRATION_STATUS_COMPLETED,
        pb.ORCHESTRATION_STATUS_TERMINATED,
    ]
)
RUNNING_ONLY = pb.OrchestrationIdReusePolicy(replaceableStatus=[pb.ORCHESTRATION_STATUS_RUNNING])

calls = Counter[str]()


@pytest.fixture
async def scheduler(tmp_path: Path) -> AsyncGenerator[Scheduler]:
    calls.clear()
    async with scheduling(tmp_path) as running:
        yield running


def double(_: Any, number: int) -> int:
    return 2 * number


def flaky(_: Any, times: int) -> str:
    calls["flaky"] += 1
    if calls["flaky"] <= times:
        raise ValueError(f"attempt {calls['flaky']}")
    return "done"


def child(ctx: Context, number: int) -> Any:
    result = yield ctx.call_activity(double, input=number)
    return [ctx.instance_id, result]


def everything(ctx: Context, number: int) -> Any:
    numbers = yield task.when_all([ctx.call_activity(double, input=n) for n in range(number)])
    policy = task.RetryPolicy(
        first_retry_interval=timedelta(milliseconds=10), max_number_of_attempts=3
    )
    retried = yield ctx.call_activity(flaky, input=1, retry_policy=policy)
    below = yield ctx.call_sub_orchestrator(child, input=number, instance_id="below")
    ctx.set_custom_status("waits")
    event = ctx.wait_for_external_event("go")
    winner = yield task.when_any([event, ctx.create_timer(timedelta(hours=1))])
    return [numbers, retried, below, winner == event, event.get_result()]


def waiting(ctx: Context, _: Any) -> Any:
    return (yield ctx.wait_for_external_event("go"))


def parent(ctx: Context, _: Any) -> Any:
    return (yield ctx.call_sub_orchestrator(waiting, instance_id="below"))


def failing(ctx: Context, _: Any) -> Any:
    return (yield ctx.call_sub_orchestrator(fragile, instance_id="below"))


def fragile(ctx: Context, _: Any) -> Any:
    yield ctx.call_activity(double, input=1)
    return (yield ctx.call_activity(flaky, input=1))


def counting(ctx: Context, total: int) -> Any:
    if total < 6:
        event = yield ctx.wait_for_external_event("add")
        ctx.continue_as_new(total + event, save_events=True)
    return total


async def test_all_kinds_of_steps(scheduler: Scheduler) -> None:
    async with working(scheduler.address, everything, child, double, flaky):
        instance_id = await scheduler.client.schedule_new_orchestration(
            everything, input=3, tags={"team": "a"}
        )
        await scheduler.until_status(instance_id, "waits")
        await scheduler.client.raise_orchestration_event(instance_id, "GO", data=[1])
        assert await scheduler.output(instance_id) == [
            [0, 2, 4],
            "done",
            ["below", 6],
            True,
            [1],
        ]
    events = await scheduler.client.get_orchestration_history(instance_id)
    kinds = Counter(type(event).__name__ for event in events)
    assert kinds["TaskScheduledEvent"] == kinds["TaskCompletedEvent"] + 1 == 5
    assert kinds["ExecutionCompletedEvent"] == 1
    assert kinds["OrchestratorCompletedEvent"] == 0
    (start,) = (one for one in events if isinstance(one, history.ExecutionStartedEvent))
    assert start.tags == {"team": "a"}
    (created,) = (
        one for one in events if isinstance(one, history.SubOrchestrationInstanceCreatedEvent)
    )
    below = await scheduler.client.get_orchestration_history("below")
    (start,) = (one for one in below if isinstance(one, history.ExecutionStartedEvent))
    assert start.parent_instance is not None
    assert start.parent_instance.name == "everything"
    assert start.parent_instance.task_scheduled_id == created.event_id


async def test_the_events_that_wait_are_carried_over_in_order(scheduler: Scheduler) -> None:
    instance_id = await scheduler.client.schedule_new_orchestration(counting, input=0)
    for number in (1, 2, 3):
        await scheduler.client.raise_orchestration_event(instance_id, "add", data=number)
    async with working(scheduler.address, counting):
        assert await scheduler.output(instance_id) == 6
    assert (await scheduler.state(instance_id)).serialized_input == "6"


async def test_a_failure_has_its_details_and_can_be_rewound(scheduler: Scheduler) -> None:
    async with working(scheduler.address, failing, fragile, double, flaky):
        instance_id = await scheduler.client.schedule_new_orchestration(failing)
        state = await scheduler.ended(instance_id)
        assert state.runtime_status is OrchestrationStatus.FAILED
        assert state.failure_details is not None
        assert state.failure_details.error_type == "durabletask.task.TaskFailedError"
        inner = state.failure_details.inner_failure
        assert inner is not None
        assert inner.inner_failure is not None
        assert inner.inner_failure.error_type == "builtins.ValueError"
        await scheduler.client.purge_orchestration("below")
        await scheduler.client.rewind_orchestration(instance_id, reason="mended")
        assert await scheduler.output(instance_id) == "done"


async def test_clients_suspend_resume_and_terminate(scheduler: Scheduler) -> None:
    async with working(scheduler.address, parent, waiting):
        await scheduler.client.schedule_new_orchestration(parent, instance_id="above")
        await eventually(lambda: scheduler.client.get_orchestration_state("below"))
        await scheduler.client.wait_for_orchestration_start("below")
        await scheduler.client.suspend_orchestration("below")
        await scheduler.client.raise_orchestration_event("below", "go", data=1)

        async def is_suspended() -> bool:
            state = await scheduler.state("below")
            return state.runtime_status is OrchestrationStatus.SUSPENDED

        await eventually(is_suspended)
        await scheduler.client.resume_orchestration("below")
        assert await scheduler.output("above") == 1
        for instance_id in ("above", "above"):  # the second one replaces the first
            await scheduler.client.schedule_new_orchestration(
                parent, instance_id=instance_id, reuse_id_policy=ANY_ID
            )
            await scheduler.client.wait_for_orchestration_start(instance_id)
        await scheduler.client.terminate_orchestration("above", output="enough")
        state = await scheduler.ended("above")
        assert state.runtime_status is OrchestrationStatus.TERMINATED
        assert state.serialized_output == '"enough"'
        assert (await scheduler.ended("below")).runtime_status is OrchestrationStatus.TERMINATED
    purged = await scheduler.client.purge_orchestration("above", recursive=True)
    assert purged.deleted_instance_count == 2


async def test_a_running_orchestration_is_restarted_under_a_new_id(scheduler: Scheduler) -> None:
    async with working(scheduler.address, waiting):
        one = await scheduler.client.schedule_new_orchestration(waiting)
        await scheduler.client.wait_for_orchestration_start(one)
        with pytest.raises(grpc.aio.AioRpcError, match="has status Running"):
            await scheduler.client.restart_orchestration(one)
        other = await scheduler.client.restart_orchestration(one, restart_with_new_instance_id=True)
        for instance_id in (one, other):
            await scheduler.client.raise_orchestration_event(instance_id, "go", data=instance_id)
            assert await scheduler.output(instance_id) == instance_id


async def test_a_termination_needs_no_worker(scheduler: Scheduler) -> None:
    await scheduler.client.schedule_new_orchestration(child, input=1, instance_id="one")
    await scheduler.client.terminate_orchestration("one", output="why")
    state = await scheduler.ended("one")
    assert state.runtime_status is OrchestrationStatus.TERMINATED
    async with working(scheduler.address, child, double):  # the episode is not there any more
        other = await scheduler.client.schedule_new_orchestration(child, input=2)
        assert await scheduler.output(other) == [other, 4]
    assert len(await scheduler.client.get_orchestration_history("one")) == 3


async def test_a_later_start_waits(scheduler: Scheduler) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    soon = datetime.now(UTC) + timedelta(milliseconds=200)
    for instance_id, at in (("later", later), ("soon", soon)):
        await scheduler.client.schedule_new_orchestration(
            child, input=1, instance_id=instance_id, start_at=at
        )
    async with working(scheduler.address, child, double):
        assert await scheduler.output("soon") == ["soon", 2]
        assert datetime.now(UTC) >= soon
    await scheduler.client.terminate_orchestration("later")
    state = await scheduler.ended("later")
    assert state.runtime_status is OrchestrationStatus.TERMINATED


async def test_ids_pages_and_restarts(scheduler: Scheduler) -> None:
    async with working(scheduler.address, child, double):
        for n in range(5):
            await scheduler.client.schedule_new_orchestration(
                child, input=n, instance_id=f"page-{n}"
            )
            await scheduler.ended(f"page-{n}")
        with pytest.raises(grpc.aio.AioRpcError, match="ALREADY_EXISTS"):
            await scheduler.client.schedule_new_orchestration(child, instance_id="page-1")
        with pytest.raises(grpc.aio.AioRpcError, match="cannot exclude 'Terminated'"):
            await scheduler.client.schedule_new_orchestration(
                child, instance_id="page-1", reuse_id_policy=RUNNING_ONLY
            )
        with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
            await scheduler.client.restart_orchestration("nobody")
        again = await scheduler.client.restart_orchestration(
            "page-4", restart_with_new_instance_id=True
        )
        assert await scheduler.output(again) == [again, 8]
    query = OrchestrationQuery(
        instance_id_prefix="page-", max_instance_count=2, fetch_inputs_and_outputs=True
    )
    states = await scheduler.client.get_all_orchestration_states(query)
    assert [state.get_output() for state in states] == [[f"page-{n}", 2 * n] for n in range(5)]
    first = await scheduler.client.list_instance_ids(page_size=4)
    rest = await scheduler.client.list_instance_ids(
        page_size=4, continuation_token=first.continuation_token
    )
    assert [*first.items, *rest.items] == [*(f"page-{n}" for n in range(5)), again]
    gone = await scheduler.client.purge_orchestrations_by(
        runtime_status=[OrchestrationStatus.COMPLETED]
    )
    assert gone.deleted_instance_count == 6


def writing(ctx: Context, size: int) -> Any:
    return (yield ctx.call_activity(write, input=size))


def write(_: Any, size: int) -> str:
    return size * "x"


async def test_a_payload_over_1_mb_is_refused(scheduler: Scheduler) -> None:
    most = limits.DURABLE_SCHEDULER_PAYLOAD.value - len('""')
    async with working(scheduler.address, writing, write):
        with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT"):
            await scheduler.client.schedule_new_orchestration(
                "writing", input=write(None, most + 1)
            )
        fits, too_long = [
            await scheduler.client.schedule_new_orchestration(writing, input=size)
            for size in (most, most + 1)
        ]
        assert len(await scheduler.output(fits)) == most
        failure = (await scheduler.ended(too_long)).failure_details
        assert failure is not None
        assert "the result of activity 'write'" in failure.message


async def test_a_version_goes_to_the_worker_that_has_it(scheduler: Scheduler) -> None:
    def versioned(version: str) -> Any:
        options = VersioningOptions(
            version=version,
            default_version=version,
            match_strategy=VersionMatchStrategy.STRICT,
            failure_strategy=VersionFailureStrategy.REJECT,
        )

        def use(worker: TaskHubGrpcWorker) -> None:
            worker.use_versioning(options)

        return use

    async with contextlib.AsyncExitStack() as stack:
        for version in ("1.0", "2.0"):
            await stack.enter_async_context(
                working(scheduler.address, child, double, prepare=versioned(version))
            )
        ids = [
            await scheduler.client.schedule_new_orchestration(child, input=1, version=version)
            for version in ("1.0", "2.0")
        ]
        assert [await scheduler.output(one) for one in ids] == [[one, 2] for one in ids]


async def test_task_hubs_are_apart(scheduler: Scheduler) -> None:
    def client_of(hub: str) -> AsyncDurableTaskSchedulerClient:
        return AsyncDurableTaskSchedulerClient(
            host_address=f"http://{scheduler.address}",
            taskhub=hub,
            secure_channel=True,
            token_credential=None,
            logger=QUIET,
        )

    worker = DurableTaskSchedulerWorker(
        host_address=f"http://{scheduler.address}",
        taskhub="a",
        secure_channel=True,
        token_credential=None,
        logger=QUIET,
    )
    worker.add_orchestrator(child)
    worker.add_activity(double)
    async with client_of("a") as one, client_of("b") as other, client_of("../a") as wrong:
        worker.start()
        try:
            instance_id = await one.schedule_new_orchestration(child, input=1)
            await other.schedule_new_orchestration(child, instance_id=instance_id)
            state = await one.wait_for_orchestration_completion(instance_id)
        finally:
            await asyncio.to_thread(worker.stop)
        assert state is not None
        assert state.runtime_status is OrchestrationStatus.COMPLETED
        state = await other.get_orchestration_state(instance_id)
        assert state is not None
        assert state.runtime_status is OrchestrationStatus.PENDING
        with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT"):
            await wrong.get_orchestration_state(instance_id)


async def test_a_task_hub_is_emptied_and_deleted(scheduler: Scheduler) -> None:
    async with (
        working(scheduler.address, child, double),
        grpc.aio.insecure_channel(scheduler.address) as channel,
    ):
        stub = TaskHubSidecarServiceStub(channel)
        start = pb.CreateInstanceRequest(name="x", instanceId="one")
        found = pb.GetInstanceRequest(instanceId="one")
        removals = (
            (stub.CreateTaskHub, pb.CreateTaskHubRequest(recreateIfExists=True)),
            (stub.DeleteTaskHub, pb.DeleteTaskHubRequest()),
        )
        for remove, request in removals:
            await stub.StartInstance(start)
            assert (await stub.GetInstance(found)).exists
            await remove(request)
            assert not (await stub.GetInstance(found)).exists
        instance_id = await scheduler.client.schedule_new_orchestration(child, input=1)
        assert await scheduler.output(instance_id) == [instance_id, 2]  # the worker is back
