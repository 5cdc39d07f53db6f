"""Versions, limits, HTTP calls and an unreliable worker."""

# The worker is made to fail.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest
from aiohttp import web

from harness.task_hub import DurableApp, running
from localazure.functions.durable.engine.invocation import Trigger
from localazure.functions.durable.runtime import work_queue
from localazure.functions.triggers.durable.functions import DurableFunctions

Context = df.DurableOrchestrationContext


def versioned_app() -> DurableApp:
    app = DurableApp()

    @app.orchestrator
    def versioned(context: Context) -> Any:
        return context.version

    return app


async def test_default_and_explicit_version(tmp_path: Path) -> None:
    async with running(versioned_app(), tmp_path, host_json={"defaultVersion": "2.0"}) as hub:
        assert (await hub.run("versioned")).output == "2.0"
        assert (await hub.run("versioned", version="1.5")).output == "1.5"


async def test_a_newer_instance_waits_for_a_newer_host(tmp_path: Path) -> None:
    app = versioned_app()
    async with running(app, tmp_path, host_json={"defaultVersion": "2.0"}) as hub:
        await hub.client.start_new("versioned", "new", version="3.0")
        await hub.run("versioned")
        assert (await hub.client.get_status("new")).runtime_status.value == "Pending"
    async with running(app, tmp_path, host_json={"defaultVersion": "3.0"}) as hub:
        assert (await hub.until("new")).output == "3.0"


async def test_strict_match_and_failure(tmp_path: Path) -> None:
    host_json = {
        "defaultVersion": "2.0",
        "versionMatchStrategy": "Strict",
        "versionFailureStrategy": "Fail",
    }
    async with running(versioned_app(), tmp_path, host_json=host_json) as hub:
        status = await hub.run("versioned", version="1.0")
    assert status.runtime_status.value == "Failed"
    assert "VersionMismatch" in status.output


async def test_activity_limit(tmp_path: Path) -> None:
    app = DurableApp()
    at_once = most = 0

    @app.activity
    async def busy(_: int) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.002)
        at_once -= 1

    @app.orchestrator
    def fan(context: Context) -> Any:
        yield context.task_all([context.call_activity("busy", n) for n in range(20)])

    async with running(app, tmp_path, host_json={"maxConcurrentActivityFunctions": 3}) as hub:
        await hub.run("fan")
    assert most == 3


async def test_a_worker_that_breaks_down_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY_SECONDS", 0.01)
    app = DurableApp()

    @app.activity
    def step(number: int) -> int:
        return number + 1

    @app.orchestrator
    def fragile(context: Context) -> Any:
        return (yield context.call_activity("step", 1))

    invoke, broken = DurableFunctions._invoke, {"step": 2, "fragile": 2}

    async def unreliable(functions: DurableFunctions, name: str, trigger: Trigger) -> str | None:
        if broken[name]:
            broken[name] -= 1
            raise ConnectionError("the worker is gone")
        return await invoke(functions, name, trigger)

    monkeypatch.setattr(DurableFunctions, "_invoke", unreliable)
    async with running(app, tmp_path) as hub:
        assert (await hub.run("fragile")).output == 2


async def test_call_http_polls_until_it_is_done(tmp_path: Path) -> None:
    polls = 0

    async def begin(request: web.Request) -> web.Response:
        assert await request.json() == {"a": 1}
        return web.Response(status=202, headers={"Location": "/poll", "Retry-After": "0"})

    async def poll(_: web.Request) -> web.Response:
        nonlocal polls
        polls += 1
        if polls < 3:
            return web.Response(status=202, headers={"Location": "/poll", "Retry-After": "0"})
        return web.json_response({"done": True})

    server = web.Application()
    server.add_routes([web.post("/begin", begin), web.get("/poll", poll)])
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    app = DurableApp()

    @app.orchestrator
    def calling(context: Context) -> Any:
        base_url: Any = context.get_input()
        answer = yield context.call_http("POST", f"{base_url}/begin", '{"a": 1}', is_raw_str=True)
        try:
            yield context.call_http("GET", "http://127.0.0.1:1/")
        except Exception as error:  # noqa: BLE001 - the SDK raises nothing narrower
            return [answer["statusCode"], answer["content"], str(error)]

    try:
        async with running(app, tmp_path) as hub:
            status = await hub.run("calling", f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()
    assert status.output[:2] == [200, '{"done": true}']
    assert "ClientConnectorError" in status.output[2]
    assert polls == 3
