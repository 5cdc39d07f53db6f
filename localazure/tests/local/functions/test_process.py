"""The host as a process: a part of localazure, and alone."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from localazure.runtime.environment import Environment

ROOT = Path(__file__).parents[4]
APPS = Path(__file__).parent / "apps"
DEADLINE_SECONDS = 60.0


@contextlib.asynccontextmanager
async def process(*arguments: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def until_up(client: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with client.get(url) as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.05)


@pytest.fixture
def part(environment: Environment) -> Environment:
    environment = dataclasses.replace(environment, app=APPS / "durable")
    environment.save()
    return environment


async def json_of(client: aiohttp.ClientSession, url: str) -> Any:
    async with client.get(url) as response:
        return await response.json()


async def test_an_orchestration_survives_kill_9_of_the_part(part: Environment) -> None:
    command = ("-m", "localazure.runtime.part", "functions", str(part.state))
    async with aiohttp.ClientSession() as client:
        async with process(*command) as first:
            await until_up(client, part.functions_url)
            async with client.post(f"{part.functions_url}/api/start/waiting") as response:
                assert response.status == 202
                links = await response.json()
            first.kill()
            await first.wait()
        async with process(*command) as second:
            await until_up(client, part.functions_url)
            url = links["sendEventPostUri"].replace("{eventName}", "go")
            async with client.post(url, json="now") as response:
                assert response.status == 202
            async with asyncio.timeout(DEADLINE_SECONDS):
                while (await json_of(client, links["statusQueryGetUri"]))[
                    "runtimeStatus"
                ] != "Completed":
                    await asyncio.sleep(0.05)
            second.send_signal(signal.SIGTERM)
            output, _ = await second.communicate()
            assert second.returncode == 0, output.decode()
    for key in dataclasses.asdict(part.keys).values():
        assert key not in output.decode()


async def test_sigterm_ends_it_although_a_function_blocks_for_ever(
    part: Environment, tmp_path: Path
) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from localazure.functions.http.access_keys import KeyRing\n"
        "from localazure.functions.host import run_app\n"
        "async def main():\n"
        "    keys = KeyRing('m', 'h', 's')\n"
        "    async with run_app(Path(sys.argv[1]), port=int(sys.argv[2]),\n"
        "                       state=Path(sys.argv[3]), keys=keys, app_settings={},\n"
        "                       drain_seconds=0.2):\n"
        "        await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        *(str(APPS / "durable"), str(part.ports.functions), str(tmp_path / "state")),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
    )
    async with aiohttp.ClientSession() as client:
        await until_up(client, part.functions_url)
        # Its activities wait for a release that never comes.
        async with client.post(f"{part.functions_url}/api/start/crowded") as response:
            assert response.status == 202
    async with asyncio.timeout(DEADLINE_SECONDS / 2):  # they would wait for 30 s
        assert running.stdin is not None
        running.stdin.close()
        assert await running.wait() == 0


@pytest.mark.parametrize(
    "work",
    [
        "await asyncio.to_thread(time.sleep, 600)",
        "threading.Thread(target=time.sleep, args=(600,)).start()",
    ],
)
async def test_sigterm_ends_it_although_threads_of_the_app_run_on(
    tmp_path: Path, free_port: int, work: str
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "host.json").write_text('{"version": "2.0", "functionTimeout": "00:00:01"}')
    (app / "function_app.py").write_text(
        "import asyncio, threading, time\n"
        "import azure.functions as func\n"
        "app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)\n"
        f"@app.route()\nasync def work(req: func.HttpRequest) -> str:\n    {work}\n"
        "    return 'at work'\n"
    )
    command = ("-m", "localazure", "start", str(app), "--port", str(free_port))
    url = f"http://127.0.0.1:{free_port}"
    async with process(*command) as host, aiohttp.ClientSession() as client:
        await until_up(client, url)
        async with client.get(f"{url}/api/work"):
            pass
        host.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await host.communicate()
        assert host.returncode == 0


async def test_the_host_alone(tmp_path: Path, free_port: int) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from localazure.functions import start_host\n"
        "asyncio.run(start_host(Path(sys.argv[1]), port=int(sys.argv[2]),\n"
        "                       state=Path(sys.argv[3])))\n"
    )
    state = tmp_path / "state"
    arguments = ("-c", script, str(APPS / "http"), str(free_port), str(state))
    async with process(*arguments) as alone, aiohttp.ClientSession() as client:
        await until_up(client, f"http://127.0.0.1:{free_port}")
        # As func does, it asks for no key.
        async with client.get(f"http://127.0.0.1:{free_port}/api/owners") as response:
            assert response.status == 200
        alone.send_signal(signal.SIGINT)
        output, _ = await alone.communicate()
    text = output.decode()
    assert alone.returncode == 0, text
    assert f"\thello: [GET,POST] http://127.0.0.1:{free_port}/api/hello/{{name:alpha?}}" in text
    keys = json.loads((state / "keys.json").read_text())
    assert not any(key in text for key in keys.values())


async def test_a_second_host_on_the_same_state_is_refused(tmp_path: Path, free_port: int) -> None:
    command = ("-m", "localazure", "start", str(APPS / "durable"), "--port", str(free_port))
    command += ("--state", str(tmp_path / "state"))
    url = f"http://127.0.0.1:{free_port}/api/counter/k"
    async with process(*command) as first, aiohttp.ClientSession() as client:
        await until_up(client, url)
        async with process(*command) as second:
            output, _ = await second.communicate()
        assert second.returncode == 1
        text = output.decode()
        # The state is what it is refused for: it comes before the port.
        assert f"in use by process {first.pid}: stop that one" in text
        assert "Traceback" not in text
        await until_up(client, url)  # the first one is not disturbed
        first.kill()
        await first.wait()
        async with process(*command) as heir:  # a dead owner holds nobody up
            await until_up(client, url)
            heir.send_signal(signal.SIGTERM)
            await heir.communicate()
        assert heir.returncode == 0


async def test_a_change_starts_the_host_anew(tmp_path: Path, free_port: int) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "host.json").write_text('{"version": "2.0"}')

    def write(body: str) -> None:
        (app / "function_app.py").write_text(
            "import azure.functions as func\n"
            "app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)\n"
            f"@app.route()\ndef version(req: func.HttpRequest) -> str:\n    {body}\n"
        )

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
    async with process(*arguments) as watching:
        await until_it_says("one")
        write("return ''' broken")
        assert watching.stdout is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while b"waiting for a change" not in await watching.stdout.readline():
                pass
        write("return 'two, mended'")
        await until_it_says("two, mended")
        watching.send_signal(signal.SIGTERM)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await watching.stdout.read()
            assert await watching.wait() == 0
