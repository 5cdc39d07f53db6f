"""`localazure start --hosts 2`: one port, timers on one host, a dead host is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp

from harness.child_process import ChildProcess

DEADLINE_SECONDS = 60.0

FUNCTION_APP = """
import os
from pathlib import Path

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
HOST = f"{os.environ['WEBSITE_INSTANCE_ID']} {os.getpid()}"


@app.route("host")
def host(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse(HOST)


@app.timer_trigger(arg_name="timer", schedule="* * * * * *")
def tick(timer: func.TimerRequest) -> None:
    with Path("ticks").open("a") as ticks:
        ticks.write(f"{HOST}\\n")
"""


def make_app(folder: Path) -> Path:
    folder.mkdir()
    (folder / "host.json").write_text('{"version": "2.0"}')
    (folder / "function_app.py").write_text(FUNCTION_APP)
    return folder


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.05)


async def hosts_that_answer(url: str, count: int) -> set[str]:
    """So many hosts, met by as many connections as it takes."""
    found: set[str] = set()
    while len(found) < count:
        async with aiohttp.ClientSession() as client:  # a connection of its own
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with client.get(url) as response:
                    found.add(await response.text())
        await asyncio.sleep(0.02)
    return found


async def test_a_dead_host_is_replaced_and_its_timers_go_on(tmp_path: Path, free_port: int) -> None:
    app = make_app(tmp_path / "app")
    ticks = app / "ticks"
    command = [
        *(sys.executable, "-m", "localazure", "start", app, "--hosts", "2"),
        *("--port", str(free_port), "--state", tmp_path / "state"),
    ]
    url = f"http://127.0.0.1:{free_port}/api/host"
    with ChildProcess(command, tmp_path / "log") as hosts:
        async with asyncio.timeout(DEADLINE_SECONDS):
            first = await hosts_that_answer(url, 2)
            await until(ticks.exists)
            (owner,) = set(ticks.read_text().splitlines())
            os.kill(int(owner.split()[1]), signal.SIGKILL)
            await until(lambda: ticks.read_text().splitlines()[-1] != owner)
            (other,) = first - {owner}
            (new,) = await hosts_that_answer(url, 2) - {other}
        assert new != owner
        assert len(set(ticks.read_text().splitlines())) == 2  # the dead one's, and one other's
        assert hosts.end() == 0, hosts.output
