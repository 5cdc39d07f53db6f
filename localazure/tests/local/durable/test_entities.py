"""Entities: the SDK's client, orchestrators and entity functions against the running engine."""

# The test observes the worker.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import DurableApp, RunningHub, running
from harness.waiting import eventually
from localazure.faults.current_plan import set_plan
from localazure.faults.plan import Plan
from localazure.functions.durable.engine.invocation import Trigger
from localazure.functions.triggers.durable.functions import DurableFunctions

Context = df.DurableOrchestrationContext
COUNTER = df.EntityId("Counter", "k")


def make_app() -> DurableApp:
    app = DurableApp()

    @app.entity
    def counter(context: Any) -> None:
        value = context.get_state(list)
        match context.operation_name:
            case "add":
                value = [*value, context.get_input()]
            case "get":
                context.set_result(value)
            case "fail":
                raise ValueError("no such thing")
            case "delete":
                context.destruct_on_exit()
                return
            case unknown:
                raise AssertionError(unknown)
        context.set_state(value)

    return app


async def state(hub: RunningHub, expected: Any) -> None:
    async def is_reached() -> bool:
        response = await hub.client.read_entity_state(COUNTER)
        return response.entity_exists and response.entity_state == expected

    await eventually(is_reached)


async def test_signals_arrive_in_order_and_survive_a_restart(tmp_path: Path) -> None:
    app = make_app()
    async with running(app, tmp_path) as hub:
        assert not (await hub.client.read_entity_state(COUNTER)).entity_exists
        for n in range(1, 20):
            await hub.client.signal_entity(COUNTER, "add", n)
        await state(hub, list(range(1, 20)))
    async with running(app, tmp_path) as hub:
        await state(hub, list(range(1, 20)))
        await hub.client.signal_entity(COUNTER, "delete")

        async def is_gone() -> bool:
            return not (await hub.client.read_entity_state(COUNTER)).entity_exists

        await eventually(is_gone)


async def test_a_signal_may_be_delivered_twice(tmp_path: Path) -> None:
    app = make_app()

    @app.orchestrator
    def both(context: Context) -> Any:
        context.signal_entity(COUNTER, "add", 2)
        return (yield context.call_entity(COUNTER, "get"))

    rule = {"part": "functions", "operation": "signal/counter", "fault": "duplicate"}
    set_plan(tmp_path, Plan.model_validate({"seed": 1, "rules": [rule]}))
    async with running(app, tmp_path) as hub:
        await hub.client.signal_entity(COUNTER, "add", 1)
        await state(hub, [1, 1])
        assert (await hub.run("both")).output == [1, 1, 2, 2]


async def test_orchestrators_call_and_signal(tmp_path: Path) -> None:
    app = make_app()

    @app.orchestrator
    def using(context: Context) -> Any:
        for n in range(3):
            context.signal_entity(COUNTER, "add", n)
        yield context.call_entity(COUNTER, "add", 99)
        values = yield context.call_entity(COUNTER, "get")
        try:
            yield context.call_entity(COUNTER, "fail")
        except Exception as error:  # noqa: BLE001 - the SDK raises nothing narrower
            return [values, str(error)]

    async with running(app, tmp_path) as hub:
        status = await hub.run("using")
    assert status.output == [[0, 1, 2, 99], "no such thing"]


async def test_many_callers_one_batch_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    busy = 0
    invoke = DurableFunctions._invoke

    async def watched(functions: DurableFunctions, name: str, trigger: Trigger) -> str | None:
        nonlocal busy
        if name != "counter":
            return await invoke(functions, name, trigger)
        busy += 1
        assert busy == 1
        await asyncio.sleep(0)
        try:
            return await invoke(functions, name, trigger)
        finally:
            busy -= 1

    monkeypatch.setattr(DurableFunctions, "_invoke", watched)

    @app.orchestrator
    def adding(context: Context) -> Any:
        for _ in range(3):
            yield context.call_entity(COUNTER, "add", context.get_input())

    async with running(app, tmp_path) as hub:
        ids = [await hub.client.start_new("adding", client_input=n) for n in range(10)]
        for instance_id in ids:
            assert (await hub.until(instance_id)).runtime_status.value == "Completed"
        response = await hub.client.read_entity_state(COUNTER)
    assert sorted(response.entity_state) == sorted(list(range(10)) * 3)


async def test_unknown_entity(tmp_path: Path) -> None:
    async with running(make_app(), tmp_path) as hub:
        with pytest.raises(Exception, match="400"):
            await hub.client.signal_entity(df.EntityId("nobody", "k"), "get")
