"""Finished instances leave nothing in memory."""

# The test accesses the engine's internals.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import EARLY_EVENTS, DurableApp, running, simple_app
from harness.waiting import eventually
from localazure.functions.durable.engine.invocation import Trigger
from localazure.functions.durable.runtime import instance_cache
from localazure.functions.durable.runtime.activities import ActivityRunner
from localazure.functions.triggers.durable.functions import DurableFunctions

pytestmark = EARLY_EVENTS

Context = df.DurableOrchestrationContext


def make_app() -> DurableApp:
    app = simple_app()
    counter = df.EntityId("count", "k")

    @app.entity
    def count(context: Any) -> None:
        context.set_state(context.get_state(lambda: 0) + 1)

    @app.orchestrator
    def mixed(context: Context) -> Any:
        timer: Any = context.create_timer(context.current_utc_datetime + timedelta(days=1))
        yield context.task_any([context.call_activity("double", 1), timer])
        timer.cancel()
        yield context.task_all([context.call_activity("double", n) for n in range(3)])
        yield context.call_entity(counter, "add")
        return "done"

    @app.orchestrator
    def again(context: Context) -> Any:
        yield context.call_activity("double", 1)
        if context.get_input() is None:
            context.continue_as_new(1)

    @app.orchestrator
    def stumbling(context: Context) -> Any:
        yield context.call_activity_with_retry("boom", df.RetryOptions(1, 2), "no")

    @app.orchestrator
    def parent(context: Context) -> Any:
        yield context.create_timer(context.current_utc_datetime + timedelta(days=1))
        yield context.call_sub_orchestrator("parent")

    return app


async def test_nothing_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_cache, "MAX_CACHED_CHARACTERS", 1)  # every episode reads the store
    async with running(make_app(), tmp_path) as hub:
        names = ("mixed", "again", "stumbling", "parent")
        ids = [await hub.client.start_new(name, f"{name}-{n}") for n in range(5) for name in names]
        for n in range(5):
            await hub.client.raise_event(f"parent-{n}", "unheard", 1)
            await hub.client.terminate(f"parent-{n}", "enough")
        ends = Counter([(await hub.until(one)).runtime_status.value for one in ids])
        assert ends == {"Completed": 10, "Failed": 5, "Terminated": 5}
        dispatcher = hub.extension._dispatcher
        activities = dispatcher.activities
        assert isinstance(activities, ActivityRunner)
        queues = [
            dispatcher._orchestrations,
            dispatcher._entities.queue,
            activities._queue,
        ]
        await eventually(lambda: not any(queue._running for queue in queues))
        for queue in queues:
            assert not any((queue._ready, queue._queued, queue._again, queue._later))
        assert not dispatcher.mail._waiting
        assert not activities._scheduled
        assert not activities._ended
        assert len(dispatcher._timers) == 0
        assert not dispatcher._live._cached
        assert dispatcher._live._characters == 0


async def test_an_instance_stays_while_its_episode_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_cache, "MAX_CACHED_CHARACTERS", 0)
    released = asyncio.Event()
    invoke = DurableFunctions._invoke

    async def invoke_when_released(
        functions: DurableFunctions, name: str, trigger: Trigger
    ) -> str | None:
        if name == "again":
            await released.wait()
        return await invoke(functions, name, trigger)

    monkeypatch.setattr(DurableFunctions, "_invoke", invoke_when_released)
    async with running(make_app(), tmp_path) as hub:
        slow = await hub.client.start_new("again")
        assert (await hub.run("stumbling")).runtime_status.value == "Failed"  # replaces the old
        released.set()
        assert (await hub.until(slow)).runtime_status.value == "Completed"
