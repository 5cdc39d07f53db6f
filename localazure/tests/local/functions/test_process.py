"""The host as a process: a part of localazure, and alone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from harness.child_process import ChildProcess
from harness.part_process import PartProcess
from harness.waiting import eventually
from localazure.runtime.environment import Environment

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


@pytest.fixture
def part(environment: Environment) -> Environment:
    environment = dataclasses.replace(environment, app=APPS / "durable")
    environment.save()
    return environment


async def test_an_orchestration_survives_kill_9_of_the_part(part: Environment) -> None:
    process = PartProcess("functions", part.state)
    async with aiohttp.ClientSession() as client:
        with process:
            async with client.post(f"{part.functions_url}/api/start/waiting") as response:
                assert response.status == 202
                links = await response.json()
            process.end(signal.SIGKILL)
    async with aiohttp.ClientSession() as client:
        with process:
            url = links["sendEventPostUri"].replace("{eventName}", "go")
            async with client.post(url, json="now") as response:
                assert response.status == 202

            async def is_completed() -> bool:
                async with client.get(links["statusQueryGetUri"]) as response:
                    return (await response.json())["runtimeStatus"] == "Completed"

            await eventually(is_completed)
            assert process.end() == 0, process.output
    for key in dataclasses.asdict(part.keys).values():
        assert key not in process.output


async def test_the_end_of_a_host_does_not_wait_for_a_function_that_blocks(
    part: Environment, tmp_path: Path, python: Callable[..., ChildProcess]
) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from localazure.functions.http.access_keys import KeyRing\n"
        "from localazure.functions.app_process import run_app\n"
        "async def main():\n"
        "    keys = KeyRing('m', 'h', 's')\n"
        "    async with run_app(Path(sys.argv[1]), port=int(sys.argv[2]),\n"
        "                       state=Path(sys.argv[3]), keys=keys, app_settings={},\n"
        "                       drain_seconds=0.2):\n"
        "        await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    arguments = (str(APPS / "durable"), str(part.ports.functions), str(tmp_path / "state"))
    with python("-c", script, *arguments) as host:
        async with aiohttp.ClientSession() as client:
            await until_up(client, part.functions_url)
            # Its activities wait for a release that never comes.
            async with client.post(f"{part.functions_url}/api/start/crowded") as response:
                assert response.status == 202
        assert host.process.stdin is not None
        host.process.stdin.close()
        assert host.wait(DEADLINE_SECONDS / 2) == 0  # the activities would wait for 30 s


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


async def test_the_host_alone(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from localazure.functions.app_process import start_host\n"
        "asyncio.run(start_host(Path(sys.argv[1]), port=int(sys.argv[2]),\n"
        "                       state=Path(sys.argv[3])))\n"
    )
    state = tmp_path / "state"
    with python("-c", script, str(APPS / "http"), str(free_port), str(state)) as alone:
        async with aiohttp.ClientSession() as client:
            await until_up(client, f"http://127.0.0.1:{free_port}")
            # Like func, it requires no key.
            async with client.get(f"http://127.0.0.1:{free_port}/api/owners") as response:
                assert response.status == 200
        assert alone.end(signal.SIGINT) == 0, alone.output
    text = alone.output
    assert f"\thello: [GET,POST] http://127.0.0.1:{free_port}/api/hello/{{name:alpha?}}" in text
    keys = json.loads((state / "keys.json").read_text())
    assert not any(key in text for key in keys.values())


async def test_a_second_host_on_the_same_state_is_refused(
    tmp_path: Path, free_port: int, python: Callable[..., ChildProcess]
) -> None:
    command = ("-m", "localazure", "start", str(APPS / "http"), "--port", str(free_port))
    command += ("--state", str(tmp_path / "state"))
    url = f"http://127.0.0.1:{free_port}/api/hello"
    async with aiohttp.ClientSession() as client:
        with python(*command) as first:
            await until_up(client, url)
            with python(*command) as second:
                assert second.wait() == 1
            # The error is about the state, which is locked before the port is taken.
            assert f"in use by process {first.pid}: stop that one" in second.output
            assert "Traceback" not in second.output
            await until_up(client, url)  # the first one still runs
            first.end(signal.SIGKILL)
        with python(*command) as third:
            await until_up(client, url)
            assert third.end() == 0


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
