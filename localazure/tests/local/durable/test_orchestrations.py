"""The SDK's client and orchestrators with the running engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import EARLY_EVENTS, running, simple_app
from harness.waiting import eventually

pytestmark = EARLY_EVENTS

Context = df.DurableOrchestrationContext


async def test_external_event_waits_and_is_buffered(tmp_path: Path) -> None:
    app = simple_app()

    @app.orchestrator
    def listening(context: Context) -> Any:
        first = yield context.wait_for_external_event("go")
        yield context.call_activity("double", 1)
        early = yield context.wait_for_external_event("early")
        return [first, early]

    async with running(app, tmp_path) as hub:
        instance_id = await hub.client.start_new("listening")
        await hub.until(instance_id, "Running")
        await hub.client.raise_event(instance_id, "early", {"n": 2})
        await hub.client.raise_event(instance_id, "go", [1])
        status = await hub.until(instance_id)
        assert status.output == ["[1]", '{"n": 2}']  # the SDK sends JSON inside a JSON string
        with pytest.raises(Exception, match="is gone"):
            await hub.client.raise_event(instance_id, "go", 1)
        with pytest.raises(Exception, match="No instance"):
            await hub.client.raise_event("nobody", "go", 1)


async def test_reused_event_task_with_fresh_timers(tmp_path: Path) -> None:
    """A task in several task_any: the SDK lists it only in the first one."""
    app = simple_app()

    @app.orchestrator
    def watching(context: Context) -> Any:
        event = context.wait_for_external_event("done")
        polls = 0
        while True:
            timer: Any = context.create_timer(
                context.current_utc_datetime + timedelta(milliseconds=20 if polls < 2 else 10**8)
            )
            winner = yield context.task_any([event, timer])
            if winner is event:
                timer.cancel()
                break
            polls += 1
        return [polls, (yield context.call_activity("double", polls))]

    async with running(app, tmp_path) as hub:
        instance_id = await hub.client.start_new("watching")
        await eventually(lambda: app.count("watching") >= 3)
        await hub.client.raise_event(instance_id, "done", "x")
        status = await hub.until(instance_id)
    assert status.output == [2, 4]


async def test_sub_orchestrations(tmp_path: Path) -> None:
    app = simple_app()
    seen: list[tuple[str, str]] = []

    @app.orchestrator
    def child(context: Context) -> Any:
        seen.append((context.instance_id, context.parent_instance_id))
        if context.get_input() == 13:
            yield context.call_activity("boom", "unlucky")
        return (yield context.call_activity("double", context.get_input()))

    @app.orchestrator
    def parent(context: Context) -> Any:
        results = yield context.task_all(
            [
                context.call_sub_orchestrator("child", 1, instance_id="named"),
                context.call_sub_orchestrator("child", 2),
            ]
        )
        try:
            yield context.call_sub_orchestrator_with_retry(
                "child", df.RetryOptions(5, 2), 13, instance_id="unlucky"
            )
        except Exception as error:  # noqa: BLE001 - the SDK raises nothing narrower
            return [*results, str(error)]

    async with running(app, tmp_path) as hub:
        status = await hub.run("parent", instance_id="the-parent")
        assert (await hub.until("named")).output == 2
        assert (await hub.until("unlucky")).runtime_status.value == "Failed"
    assert status.output[:2] == [2, 4]
    assert status.output[2].startswith(
        "Orchestrator function 'child' failed: Activity function 'boom' failed: ValueError: unlucky"
    )
    assert ("named", "the-parent") in seen


async def test_unknown_functions(tmp_path: Path) -> None:
    app = simple_app()

    @app.orchestrator
    def lost(context: Context) -> Any:
        yield context.call_activity("nowhere", 1)

    async with running(app, tmp_path) as hub:
        with pytest.raises(Exception, match="known orchestrator functions: 'simple', 'failing'"):
            await hub.client.start_new("nothing")
        status = await hub.run("LOST")
    assert "The function 'nowhere' doesn't exist" in status.output


async def test_a_timer_longer_than_the_real_host_keeps_messages(tmp_path: Path) -> None:
    app = simple_app()

    @app.orchestrator
    def patient(context: Context) -> Any:
        begun = context.current_utc_datetime
        yield context.create_timer(begun + timedelta(days=10))
        return (context.current_utc_datetime - begun).days

    async with running(app, tmp_path) as hub:
        instance_id = await hub.client.start_new("patient")
        for days in (4, 8):
            episodes = 1 if days == 4 else 2
            await eventually(lambda: app.count("patient") == episodes)  # noqa: B023 - awaited here
            await hub.until(instance_id, "Running")
            hub.clock.offset += timedelta(days=days)
            hub.extension.fire_timers()
        assert (await hub.until(instance_id)).output == 12


async def test_a_sub_orchestration_cannot_take_a_live_id(tmp_path: Path) -> None:
    app = simple_app()

    @app.orchestrator
    def parent(context: Context) -> Any:
        yield context.call_sub_orchestrator("parent", instance_id="the-parent")

    async with running(app, tmp_path) as hub:
        status = await hub.run("parent", instance_id="the-parent")
    assert status.runtime_status.value == "Failed"
    assert "the instance id 'the-parent' is in use" in status.output


async def test_a_late_activity_does_not_reach_the_next_execution(tmp_path: Path) -> None:
    app = simple_app()
    gates = [asyncio.Event(), asyncio.Event()]

    @app.activity
    async def gated(number: int) -> int:
        await gates[number].wait()
        return number

    @app.orchestrator
    def once(context: Context) -> Any:
        return (yield context.call_activity("gated", context.get_input()))

    async with running(app, tmp_path) as hub:
        await hub.client.start_new("once", "same", 0)
        await eventually(lambda: app.count("gated") == 1)
        await hub.client.terminate("same", "too slow")
        await hub.until("same", "Terminated")
        await hub.client.start_new("once", "same", 1)
        await eventually(lambda: app.count("gated") == 2)
        gates[0].set()
        await asyncio.sleep(0)
        gates[1].set()
        assert (await hub.until("same")).output == 1
