"""Durability: the effects that wait for the disk, and those that do not (docs/decisions/0008)."""

# The test accesses the engine's internals.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from harness.task_hub import DurableApp, RunningHub, running, simple_app
from harness.waiting import eventually
from localazure.functions.durable.runtime import work_queue


def make_app(gate: asyncio.Event) -> DurableApp:
    app = simple_app()

    @app.activity
    async def gated(_: None) -> int:
        await gate.wait()
        return 1

    @app.orchestrator
    def chain(context: df.DurableOrchestrationContext) -> Any:
        number = yield context.call_activity("gated", None)
        for _ in range(3):
            number = yield context.call_activity("double", number)
        return number

    return app


def hold_the_disk(hub: RunningHub) -> threading.Event:
    """Block the writing thread until the returned event is set."""
    release = threading.Event()

    def wait(_: sqlite3.Connection) -> None:
        release.wait(30)

    hub.extension._store._database.submit(wait)
    return release


async def test_an_instance_goes_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = make_app(gate)
    async with running(app, tmp_path) as hub:
        await hub.client.start_new("chain", "one")
        await hub.until("one", "Running")
        release = hold_the_disk(hub)
        try:
            start = asyncio.create_task(hub.client.start_new("chain", "two"))
            gate.set()
            await eventually(lambda: app.count("double") == 3)
            await eventually(lambda: app.count("chain") == 5)
            # The client sees only durable results.
            assert (await hub.client.get_status("one")).runtime_status.value == "Running"
            assert not start.done()
        finally:
            release.set()
        assert await start == "two"
        assert (await hub.until("one")).output == 8
        assert (await hub.until("two")).output == 8


async def test_what_ended_while_the_disk_was_full_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY_SECONDS", 0.02)
    gate = asyncio.Event()
    app = make_app(gate)
    async with running(app, tmp_path) as hub:
        await hub.client.start_new("chain", "one")
        await hub.until("one", "Running")
        store = hub.extension._store

        def fail(_: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        store._submit(fail)
        gate.set()
        assert (await hub.until("one")).output == 8
    assert app.count("gated") == 1


async def test_an_end_that_nobody_takes_is_recorded(tmp_path: Path) -> None:
    gate = asyncio.Event()
    app = make_app(gate)
    async with running(app, tmp_path) as hub:
        await hub.client.start_new("chain", "one")
        await hub.until("one", "Running")
        await hub.client.suspend("one", "lunch")
        await hub.until("one", "Suspended")
        gate.set()
        store = hub.extension._store
        await eventually(lambda: not store.activities() and len(store.inbox()) == 1)
    async with running(app, tmp_path) as hub:
        await hub.client.resume("one", "back")
        assert (await hub.until("one")).output == 8
    assert app.count("gated") == 1
