"""The commands of the tools' own pages, with the wheels that users install."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from demo.console import ROOT, Command, run, run_by, shows
from durable_apps.commands import KEY, running, start, until
from harness.child_process import ChildProcess
from harness.wheel import START_SECONDS, build_wheel
from localazure.processes.ports import free_ports

PAGES = {block.page: block for block in run_by(__file__)}
APP, GUARD, SCHEDULER = (
    "localazure/README.md",
    "replay_guard/README.md",
    "localazure/docs/scheduler.md",
)
APPROVAL = ROOT / "replay_guard" / "tests" / "durable_apps" / "approval"
HELLO = """
import azure.functions as func

app = func.FunctionApp()


@app.route(route="hello")
def hello(req: func.HttpRequest) -> str:
    return "hello"
"""


async def install(command: Command, folder: Path, wheels: Path, source: str) -> Mapping[str, str]:
    """Run a page's `pip install` beside this environment; return the variables that find it."""
    build_wheel(wheels, source)
    target = folder / "installed"
    text = command.text.removeprefix("make dist && ")
    pip = {"PIP_TARGET": str(target), "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = await run(text, {**pip, "PATH": path}, folder)
    assert done.status == 0, done.output
    return {"PATH": f"{target / 'bin'}:{path}", "PYTHONPATH": str(target)}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("page", "ports", "ready"),
    [
        (APP, {"--port": "7071"}, "/api/hello"),
        (SCHEDULER, {"--port": "8080", "--page-port": "8082"}, "Ctrl-C ends it"),
    ],
    ids=[APP, SCHEDULER],
)
async def test_localazure_starts(
    page: str, ports: Mapping[str, str], ready: str, tmp_path: Path
) -> None:
    installing, starting = PAGES[page].commands
    variables = await install(installing, tmp_path, tmp_path / "build" / "dist", "localazure")
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    (tmp_path / "function_app.py").write_text(HELLO)
    text, output = f"exec {starting.text}", starting.output
    for (option, documented), port in zip(ports.items(), free_ports(len(ports)), strict=True):
        text += f" {option} {port}"
        output = output.replace(documented, str(port))
    command = ["bash", "-c", text]
    with ChildProcess(command, tmp_path / "log", folder=tmp_path, variables=variables) as process:
        process.wait_for_output(ready, START_SECONDS)
        assert shows(process.output, output)


@pytest.mark.asyncio
async def test_the_replay_guard_tells_changed_code(tmp_path: Path) -> None:
    installing, *commands = PAGES[GUARD].commands
    variables = await install(installing, tmp_path, tmp_path, "replay_guard")
    changed = tmp_path / "app"
    shutil.copytree(APPROVAL, changed)
    source = (changed / "function_app.py").read_text("utf-8")
    (changed / "function_app.py").write_text(source.replace("hours=72", "hours=71"))
    async with running(APPROVAL, tmp_path / "state") as (url, client):
        await start(client, "approval", None)
        await until(client, "approval-1", lambda status: status["customStatus"] is not None)
        values = {"REPLAY_GUARD_KEY=...": f"REPLAY_GUARD_KEY='{KEY}'", "APP_FOLDER": str(changed)}
        values["https://APP.azurewebsites.net"] = url
        exports = ""
        for command in commands:
            text = command.text
            for example, value in values.items():
                text = text.replace(example, value)
            exports += f"{text}\n" if text.startswith("export ") else ""
            done = await run(f"{exports}{text}", variables, tmp_path)
            assert shows(done.output, command.output), (text, done.output)
            assert done.status == ("check" in text), (text, done.output)


def test_each_page_is_read() -> None:
    assert set(PAGES) == {APP, GUARD, SCHEDULER}
