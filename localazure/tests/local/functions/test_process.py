"""The host as a process, alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from harness.child_process import ChildProcess
from harness.waiting import eventually

APPS = Path(__file__).parent / "apps"
DEADLINE_SECONDS = 60.0


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., ChildProcess]:
    """A Python process with these arguments."""
    names = itertools.count()

    def make(*arguments: str) -> ChildProcess:
        return ChildProcess([sys.executable, *arguments], tmp_path / f"{next(names)}.log")

    return make


def write_app(folder: Path, body: str, **host_json: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **host_json}))
    (folder / "function_app.py").write_text(
        "import azure.functions as func\n"
        f"app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)\n{body}"
    )
    return folder


async def until_up(client: aiohttp.ClientSession, url: str) -> None:
    async def is_up() -> bool:
        with contextlib.suppress(aiohttp.ClientConnectionError):
            async with client.get(url) as response:
                return response.status == 200
        return False

    await eventually(is_up, DEADLINE_SECONDS)


async def test_sigterm_ends_a_host_although_threads_of_the_app_run_on(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    app = write_app(
        tmp_path / "app",
        "import asyncio, threading, time\n"
        "@app.route()\nasync def work(req: func.HttpRequest) -> str:\n"
        "    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    return 'at work'\n",
    )
    command = ("-m", "localazure", "start", str(app), "--port", str(free_port))
    url = f"http://127.0.0.1:{free_port}"
    with python(*command) as host:
        async with aiohttp.ClientSession() as client:
            await until_up(client, url)
            async with client.get(f"{url}/api/work") as response:
                assert await response.text() == "at work"
        assert host.end() == 0


async def test_a_host_alone_has_its_state_to_itself(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    state = tmp_path / "state"
    command = ("-m", "localazure", "start", str(APPS / "http"), "--port", str(free_port))
    command += ("--state", str(state))
    url = f"http://127.0.0.1:{free_port}/api"
    async with aiohttp.ClientSession() as client:
        with python(*command) as first:
            await until_up(client, f"{url}/owners")  # like func, it requires no key
            with python(*command) as second:
                assert second.wait() == 1
            # The error is about the state, which is locked before the port is taken.
            assert f"in use by process {first.pid}: stop that one" in second.output
            assert "Traceback" not in second.output
            await until_up(client, f"{url}/hello")  # the first one still runs
            first.end(signal.SIGKILL)
        with python(*command) as third:
            await until_up(client, f"{url}/hello")
            assert third.end(signal.SIGINT) == 0, third.output
    assert f"\thello: [GET,POST] {url}/hello/{{name:alpha?}}" in third.output
    keys = json.loads((state / "keys.json").read_text())
    assert not any(key in third.output for key in keys.values())


async def test_a_change_restarts_the_host(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    app = tmp_path / "app"

    def write(body: str) -> None:
        write_app(app, f"@app.route()\ndef version(req: func.HttpRequest) -> str:\n    {body}\n")

    async def until_it_says(text: str) -> None:
        url = f"http://127.0.0.1:{free_port}/api/version"
        async with asyncio.timeout(DEADLINE_SECONDS), aiohttp.ClientSession() as client:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(url) as response:
                        if await response.text() == text:
                            return
                await asyncio.sleep(0.05)

    write("return 'one'")
    arguments = ("-m", "localazure", "start", str(app), "--port", str(free_port), "--watch")
    with python(*arguments) as watching:
        await until_it_says("one")
        write("return ''' broken")
        await asyncio.to_thread(watching.wait_for_output, "waiting for a change", DEADLINE_SECONDS)
        write("return 'two, mended'")
        await until_it_says("two, mended")
        assert watching.end() == 0


async def test_a_timeout_recycles_the_process(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    app = write_app(
        tmp_path / "app",
        "import time, uuid\n"
        "PROCESS = str(uuid.uuid4())\n"
        "@app.route()\ndef process(req: func.HttpRequest) -> str:\n    return PROCESS\n"
        "@app.route()\ndef slow(req: func.HttpRequest) -> str:\n    time.sleep(600)\n",
        functionTimeout="00:00:01",
    )
    command = ("-m", "localazure", "start", str(app), "--port", str(free_port))
    url = f"http://127.0.0.1:{free_port}"
    with python(*command) as host:
        async with aiohttp.ClientSession() as client:
            await until_up(client, url)
            async with client.get(f"{url}/api/process") as response:
                before = await response.text()
            async with client.get(f"{url}/api/slow") as response:
                assert response.status == 500
            async with asyncio.timeout(DEADLINE_SECONDS):
                after = before
                while after == before:
                    await until_up(client, url)
                    with contextlib.suppress(aiohttp.ClientError):
                        async with client.get(f"{url}/api/process") as response:
                            after = await response.text() if response.status == 200 else before
        assert host.end() == 0
    assert "'slow' ran longer than host.json's functionTimeout of 0:00:01" in host.output
    assert host.output.count("the process is recycled") == 1
