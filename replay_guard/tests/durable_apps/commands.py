"""Commands of the replay guard on an app, and requests to the app's host."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import azure.durable_functions

from localazure.functions.http.authorization import KeyRing
from localazure.functions.service import run_app
from localazure.processes.ports import free_ports
from replay_guard.__main__ import main

KEY = "a system key/with+odd=characters"
DURABLE = "/runtime/webhooks/durabletask"
DEADLINE_SECONDS = 60.0
IS_VERSION_2 = hasattr(azure.durable_functions, "DurableFunctionsClient")
Ran = subprocess.CompletedProcess[str]


def guard(*arguments: str | Path, **environment: str) -> Ran:
    """The command line, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "replay_guard", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def guard_here(*arguments: str | Path) -> Ran:
    """The command line in this process: to start one takes longer than a check."""
    out, errors, path = io.StringIO(), io.StringIO(), sys.path.copy()
    sys.modules.pop("function_app", None)
    importlib.invalidate_caches()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = main([str(each) for each in arguments])
    finally:
        sys.path[:] = path
        sys.modules.pop("function_app", None)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())


async def export(url: str, folder: Path, *options: str) -> None:
    ran = await asyncio.to_thread(
        guard, "export", url, "--out", folder, "--version", "1.0", *options, REPLAY_GUARD_KEY=KEY
    )
    assert ran.returncode == 0, ran.stderr
    assert KEY not in ran.stdout + ran.stderr


@contextlib.asynccontextmanager
async def running(app: Path, state: Path) -> AsyncGenerator[tuple[str, aiohttp.ClientSession]]:
    """The app on localazure: its URL, and a client with the key."""
    keys = KeyRing(master="master", host="host", system=KEY)
    async with (
        run_app(app, port=free_ports(1)[0], state=state, keys=keys, app_settings={}) as host,
        aiohttp.ClientSession(host.base_url, headers={"x-functions-key": KEY}) as client,
    ):
        yield str(host.base_url), client


def is_completed(status: Any) -> bool:
    return status["runtimeStatus"] == "Completed"


async def until(client: aiohttp.ClientSession, instance: str, holds: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            url = f"{DURABLE}/instances/{instance}?showHistory=true"
            async with client.get(url) as response:
                status = await response.json()
            assert status["runtimeStatus"] != "Failed", status["output"]
            if holds(status):
                return
            await asyncio.sleep(0.02)


async def start(client: aiohttp.ClientSession, name: str, given: Any) -> None:
    # As the SDK's client does: with version 1, JSON within a JSON string.
    body = json.dumps(given) if IS_VERSION_2 else json.dumps(json.dumps(given))
    async with client.post(
        f"{DURABLE}/orchestrators/{name}/{name}-1",
        data=body,
        headers={"content-type": "application/json"},
    ) as response:
        assert response.status == 202


def check(app: Path, folder: Path, run: Callable[..., Ran] = guard_here) -> Ran:
    return run("check", app, *sorted(folder.glob("*.json")))
