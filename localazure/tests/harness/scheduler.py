"""A scheduler in the test's event loop, with workers and a client of the Durable Task SDK."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationState
from durabletask.worker import TaskHubGrpcWorker

from harness.waiting import eventually
from localazure.runtime.environment import LOOPBACK
from localazure.scheduler.server import running

WAIT_SECONDS = 60
QUIET = logging.getLogger("durabletask.quiet")
QUIET.setLevel(logging.CRITICAL)


@contextlib.asynccontextmanager
async def working(
    address: str,
    *functions: Callable[..., Any],
    entities: tuple[Callable[..., Any], ...] = (),
    prepare: Callable[[TaskHubGrpcWorker], object] = lambda _: None,
    make: Callable[..., TaskHubGrpcWorker] = TaskHubGrpcWorker,
) -> AsyncGenerator[TaskHubGrpcWorker]:
    """Run a worker; functions with a parameter `ctx` are orchestrators, others are activities."""
    worker = make(host_address=address, logger=QUIET)
    for function in functions:
        is_orchestrator = function.__code__.co_varnames[0] == "ctx"
        (worker.add_orchestrator if is_orchestrator else worker.add_activity)(function)
    for entity in entities:
        worker.add_entity(entity)
    prepare(worker)
    worker.start()
    try:
        yield worker
    finally:
        # Its stream ends at once; the rest takes it a second, for which nothing waits.
        threading.Thread(target=worker.stop).start()


class Scheduler:
    """A running scheduler."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = AsyncTaskHubGrpcClient(host_address=address, logger=QUIET)

    async def state(self, instance_id: str) -> OrchestrationState:
        """The state of an orchestration that exists."""
        state = await self.client.get_orchestration_state(instance_id)
        assert state is not None
        return state

    async def until_status(self, instance_id: str, custom_status: str) -> None:
        """Wait until an orchestration has set its custom status."""

        async def has_it() -> bool:
            state = await self.state(instance_id)
            state.raise_if_failed()
            return state.serialized_custom_status == json.dumps(custom_status)

        await eventually(has_it)

    async def ended(self, instance_id: str) -> OrchestrationState:
        """Wait for the end of an orchestration."""
        state = await self.client.wait_for_orchestration_completion(
            instance_id, timeout=WAIT_SECONDS
        )
        assert state is not None
        return state

    async def output(self, instance_id: str) -> Any:
        """Wait for the output of an orchestration that completes."""
        state = await self.ended(instance_id)
        state.raise_if_failed()
        return state.get_output()


@contextlib.asynccontextmanager
async def scheduling(folder: Path, page_port: int = 0) -> AsyncGenerator[Scheduler]:
    """Run a scheduler with its files in a folder."""
    async with running(folder, 0, page_port) as port:
        scheduler = Scheduler(f"{LOOPBACK}:{port}")
        try:
            yield scheduler
        finally:
            await scheduler.client.close()
