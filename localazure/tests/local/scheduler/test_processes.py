"""Workers and schedulers that die."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Generator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from durabletask import task
from durabletask.client import TaskHubGrpcClient
from durabletask.grpc_options import GrpcWorkerResiliencyOptions
from durabletask.worker import TaskHubGrpcWorker

from harness.child_process import ChildProcess
from harness.scheduler import QUIET, WAIT_SECONDS, scheduling, working
from harness.waiting import eventually, until
from localazure.processes.ports import free_ports

Context = task.OrchestrationContext
HANGS = Path(__file__).parent / "worker_that_hangs.py"

calls = Counter[int]()


def hold(_: Any, number: int) -> int:
    calls[number] += 1
    return number


def filtered(worker: TaskHubGrpcWorker) -> None:
    worker.use_work_item_filters()


def one(ctx: Context, number: int) -> Any:
    return (yield ctx.call_activity(hold, input=number))


def two(ctx: Context, _: Any) -> Any:
    first = yield ctx.call_activity(hold, input=1)
    timer = ctx.create_timer(timedelta(seconds=1))
    ctx.set_custom_status("half")
    event = yield ctx.wait_for_external_event("go")
    yield timer
    second = yield ctx.call_activity(hold, input=2)
    return [first, event, second]


async def test_a_dead_workers_activity_goes_to_another(tmp_path: Path) -> None:
    began = tmp_path / "began"
    async with scheduling(tmp_path / "hubs") as scheduler:
        hanging = ChildProcess(
            [sys.executable, HANGS, scheduler.address, began], tmp_path / "worker.log"
        )
        with hanging:
            instance_id = await scheduler.client.schedule_new_orchestration(one, input=7)
            async with working(scheduler.address, one, prepare=filtered):
                await eventually(began.exists)
            hanging.kill()
            async with working(scheduler.address, one, hold):
                assert await scheduler.output(instance_id) == 7


@pytest.fixture
def scheduler(tmp_path: Path) -> Generator[tuple[ChildProcess, str]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "localazure", "scheduler", "--port", str(port)]
    command += ["--page-port", "0"]
    process = ChildProcess([*command, "--state", tmp_path / "state"], tmp_path / "log")
    with process:
        process.wait_for_output("ready", WAIT_SECONDS)
        yield process, f"127.0.0.1:{port}"


def test_a_killed_scheduler_loses_nothing(scheduler: tuple[ChildProcess, str]) -> None:
    process, address = scheduler
    calls.clear()
    quick = GrpcWorkerResiliencyOptions(
        reconnect_backoff_base_seconds=0.1, reconnect_backoff_cap_seconds=0.2
    )
    worker = TaskHubGrpcWorker(host_address=address, logger=QUIET, resiliency_options=quick)
    worker.add_orchestrator(two)
    worker.add_activity(hold)
    with worker, TaskHubGrpcClient(host_address=address, logger=QUIET) as client:
        worker.start()
        instance_id = client.schedule_new_orchestration(two)

        def is_half_done() -> bool:
            state = client.get_orchestration_state(instance_id)
            return state is not None and state.serialized_custom_status == '"half"'

        def is_raised() -> bool:
            try:
                client.raise_orchestration_event(instance_id, "go", data=5)
            except grpc.RpcError:
                return False
            return True

        until(is_half_done)
        process.kill()
        process.wait()
        process.start()
        until(is_raised)
        state = client.wait_for_orchestration_completion(instance_id, timeout=WAIT_SECONDS)
        assert state is not None
        assert state.get_output() == [1, 5, 2]
        assert calls == {1: 1, 2: 1}


def test_the_port_must_be_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-m", "localazure", "scheduler", "--port", str(port)]
        command += ["--page-port", "0"]
        process = ChildProcess([*command, "--state", tmp_path], tmp_path / "log")
        process.start()
        assert process.wait() == 1
        assert "in use" in process.output
