"""The host as a separate process."""

from __future__ import annotations

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
Start = Callable[..., ChildProcess]


@pytest.fixture
def start(tmp_path: Path, free_port: int) -> Start:
    """Runs `localazure start` with an app and options."""
    names = itertools.count()

    def make(app: Path, *options: str | Path) -> ChildProcess:
        command = [sys.executable, "-m", "localazure", "start", app, "--port", str(free_port)]
        return ChildProcess([*command, *options], tmp_path / f"{next(names)}.log")

    return make


@pytest.fixture
def api(free_port: int) -> str:
    return f"http://127.0.0.1:{free_port}/api"


def write_app(folder: Path, body: str, **host_json: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "host.json").write_text(json.dumps({"version": "2.0", **host_json}))
    (folder / "function_app.py").write_text(
        "import azure.functions as func\n"
        f"app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)\n{body}"
    )
    return folder


async def answer_of(url: str, *, other_than: str | None = None) -> str:
    """The first successful response of a host that may still be starting."""

    async def answer() -> str | None:
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as client, client.get(url) as response:
                text = await response.text()
                return text if response.status == 200 and text != other_than else None
        return None

    return await eventually(answer, DEADLINE_SECONDS)


async def test_a_host_alone_has_its_state_to_itself(tmp_path: Path, start: Start, api: str) -> None:
    state = tmp_path / "state"
    with start(APPS / "http", "--state", state) as first:
        await answer_of(f"{api}/owners")  # no key required, as with func
        with start(APPS / "http", "--state", state) as second:
            assert second.wait() == 1
        # The error names the state, because the host locks it before it opens the port.
        assert f"in use by process {first.pid}: stop that one" in second.output
        assert "Traceback" not in second.output
        await answer_of(f"{api}/hello")  # the first host still runs
        first.end(signal.SIGKILL)
    with start(APPS / "http", "--state", state) as third:
        await answer_of(f"{api}/hello")
        assert third.end(signal.SIGINT) == 0, third.output
    assert f"\thello: [GET,POST] {api}/hello/{{name:alpha?}}" in third.output
    keys = json.loads((state / "keys.json").read_text())
    assert not any(key in third.output for key in keys.values())


async def test_a_timeout_recycles_the_process(tmp_path: Path, start: Start, api: str) -> None:
    app = write_app(
        tmp_path / "app",
        "import asyncio, threading, time, uuid\n"
        "PROCESS = str(uuid.uuid4())\n"
        "@app.route()\ndef process(req: func.HttpRequest) -> str:\n    return PROCESS\n"
        "@app.route()\ndef slow(req: func.HttpRequest) -> str:\n    time.sleep(600)\n"
        "@app.route()\nasync def work(req: func.HttpRequest) -> str:\n"
        "    asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)\n"
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    return 'at work'\n",
        functionTimeout="00:00:01",
    )
    with start(app) as host:
        before = await answer_of(f"{api}/process")
        async with aiohttp.ClientSession() as client, client.get(f"{api}/slow") as response:
            assert response.status == 500
        await answer_of(f"{api}/process", other_than=before)
        assert await answer_of(f"{api}/work") == "at work"
        assert host.end() == 0  # although threads of the app still run
    assert "'slow' ran longer than host.json's functionTimeout of 0:00:01" in host.output
    assert host.output.count("the process is recycled") == 1
