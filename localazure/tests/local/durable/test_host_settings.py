"""Versions, limits, HTTP calls and an unreliable worker."""

# The test makes the worker fail.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.task_hub import DurableApp, running, simple_app
from localazure.functions.durable.engine.invocation import Trigger
from localazure.functions.durable.runtime import work_queue
from localazure.functions.triggers.durable.functions import DurableFunctions

Context = df.DurableOrchestrationContext


@pytest.fixture
def versioned() -> DurableApp:
    app = DurableApp()

    @app.orchestrator
    def versioned(context: Context) -> Any:
        return context.version

    return app


async def test_a_newer_instance_waits_for_a_newer_host(
    versioned: DurableApp, tmp_path: Path
) -> None:
    async with running(versioned, tmp_path, host_json={"defaultVersion": "2.0"}) as hub:
        await hub.client.start_new("versioned", "new", version="3.0")
        assert (await hub.run("versioned")).output == "2.0"
        assert (await hub.run("versioned", version="1.5")).output == "1.5"
        assert (await hub.client.get_status("new")).runtime_status.value == "Pending"
    async with running(versioned, tmp_path, host_json={"defaultVersion": "3.0"}) as hub:
        assert (await hub.until("new")).output == "3.0"


async def test_an_instance_keeps_its_version_when_it_continues_as_new(
    tmp_path: Path,
) -> None:
    app = DurableApp()

    @app.orchestrator
    def eternal(context: Context) -> Any:
        if context.get_input() == "second":
            return context.version
        yield context.wait_for_external_event("go")
        context.continue_as_new("second")
        return None

    async with running(app, tmp_path, host_json={"defaultVersion": "1.0"}) as hub:
        await hub.client.start_new("eternal", "e")
        await hub.until("e", "Running")
    async with running(app, tmp_path, host_json={"defaultVersion": "1.1"}) as hub:
        await hub.client.raise_event("e", "go")
        assert (await hub.until("e")).output == "1.0"


async def test_strict_match_and_failure(versioned: DurableApp, tmp_path: Path) -> None:
    host_json = {
        "defaultVersion": "2.0",
        "versionMatchStrategy": "Strict",
        "versionFailureStrategy": "Fail",
    }
    async with running(versioned, tmp_path, host_json=host_json) as hub:
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


async def test_an_invocation_is_repeated_after_a_failure_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "RETRY_SECONDS", 0.01)
    invoke, broken = DurableFunctions._invoke, {"double": 2, "simple": 2}

    async def unreliable(functions: DurableFunctions, name: str, trigger: Trigger) -> str | None:
        if broken[name]:
            broken[name] -= 1
            raise ConnectionError("the worker is gone")
        return await invoke(functions, name, trigger)

    monkeypatch.setattr(DurableFunctions, "_invoke", unreliable)
    async with running(simple_app(), tmp_path) as hub:
        assert (await hub.run("simple")).output == 2


async def test_call_http_polls_until_it_is_done(tmp_path: Path) -> None:
    polls = 0

    def accepted() -> web.Response:
        return web.Response(status=202, headers={"Location": "/poll", "Retry-After": "0"})

    async def begin(request: web.Request) -> web.Response:
        assert await request.json() == {"a": 1}
        return accepted()

    async def poll(_: web.Request) -> web.Response:
        nonlocal polls
        polls += 1
        return accepted() if polls < 3 else web.json_response({"done": True})

    server = web.Application()
    server.add_routes([web.post("/begin", begin), web.get("/poll", poll)])
    app = DurableApp()

    @app.orchestrator
    def calling(context: Context) -> Any:
        answer = yield context.call_http(
            "POST", f"{context.get_input()}begin", '{"a": 1}', is_raw_str=True
        )
        try:
            yield context.call_http("GET", "http://127.0.0.1:1/")
        except Exception as error:  # noqa: BLE001 - the SDK raises nothing narrower
            return [answer["statusCode"], answer["content"], str(error)]

    async with TestServer(server) as service, running(app, tmp_path) as hub:
        status = await hub.run("calling", str(service.make_url("/")))
    assert status.output[:2] == [200, '{"done": true}']
    assert "ClientConnectorError" in status.output[2]
    assert polls == 3
