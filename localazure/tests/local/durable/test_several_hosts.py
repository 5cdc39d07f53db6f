"""Two hosts of one app on one task hub, in this process."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import azure.durable_functions as df

from harness.task_hub import DurableApp, RunningHub, running, simple_app
from localazure.functions.configuration.several_hosts import INSTANCE_ID
from localazure.runtime.environment import HOSTS, LEASE_SECONDS

# Longer than a test: hosts take over only released leases.
LEASE = "300"


def make_app() -> DurableApp:
    app = simple_app()

    @app.orchestrator
    def chain(context: df.DurableOrchestrationContext) -> Any:
        number = yield context.call_activity("double", 1)
        return (yield context.call_activity("double", number))

    @app.orchestrator
    def counting(context: df.DurableOrchestrationContext) -> Any:
        yield context.wait_for_external_event("go")
        return (yield context.call_entity(df.EntityId("counter", "one"), "add", 1))

    @app.entity
    def counter(context: df.DurableEntityContext) -> None:
        total = context.get_state(lambda: 0) + context.get_input()
        context.set_state(total)
        context.set_result(total)

    return app


def host(app: DurableApp, folder: Path, name: str) -> AbstractAsyncContextManager[RunningHub]:
    app_settings = {HOSTS: "2", INSTANCE_ID: name, LEASE_SECONDS: LEASE}
    return running(app, folder, app_settings=app_settings)


async def test_either_host_starts_and_answers_for_an_instance(tmp_path: Path) -> None:
    app = make_app()
    async with host(app, tmp_path, "one") as one, host(app, tmp_path, "two") as two:
        # The first host has all partitions: the second one has not renewed since its start.
        for starter, asked in ((one, two), (two, one)):
            instance_id = await starter.client.start_new("chain")
            assert (await asked.until(instance_id)).output == 4


async def test_another_host_continues_the_instances_of_released_leases(tmp_path: Path) -> None:
    app = make_app()
    ids = [f"waiting-{number}" for number in range(8)]
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(host(app, tmp_path, "one"))
        for instance_id in ids:
            await one.client.start_new("counting", instance_id)
        await asyncio.gather(*(one.until(instance_id, "Running") for instance_id in ids))
        await stack.aclose()
        two = await stack.enter_async_context(host(app, tmp_path, "two"))
        for instance_id in ids:
            await two.client.raise_event(instance_id, "go", 1)
        ends = await asyncio.gather(*map(two.until, ids))
    assert sorted(end.output for end in ends) == list(range(1, 9))
