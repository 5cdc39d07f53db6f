from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from harness.waiting import eventually
from localazure.functions import watch
from localazure.functions.watch import changed, keep_running, take_snapshot


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_what_makes_an_app_is_watched_and_nothing_else(tmp_path: Path) -> None:
    watched = ["function_app.py", "host.json", "local.settings.json", "more/part.py"]
    others = [
        "README.md",
        "more/data.json",
        ".venv/lib/a.py",
        ".localazure/b.py",
        "__pycache__/c.py",
        "node_modules/d.py",
    ]
    for name in watched + others:
        write(tmp_path / name)
    found = {str(path.relative_to(tmp_path)) for path in take_snapshot(tmp_path)}
    assert found == set(watched)


def test_files_that_came_went_or_were_written(tmp_path: Path) -> None:
    for name in ("goes.py", "grows.py", "stays.py", "touched.py"):
        write(tmp_path / name)
    before = take_snapshot(tmp_path)
    assert changed(before, take_snapshot(tmp_path)) == []
    (tmp_path / "goes.py").unlink()
    write(tmp_path / "comes.py")
    write(tmp_path / "grows.py", "more")
    os.utime(tmp_path / "touched.py", (1, 1))
    names = [path.name for path in changed(before, take_snapshot(tmp_path))]
    assert names == ["comes.py", "goes.py", "grows.py", "touched.py"]


# Notes the app's text, and ends with an error if it is no number.
HOST = """
import sys, time
text = open(sys.argv[1]).read()
open(sys.argv[2], "a").write(text)
int(text)
time.sleep(600)
"""


async def test_a_change_restarts_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.02)
    app, runs = tmp_path / "app", tmp_path / "runs"
    script, said = app / "function_app.py", ""
    write(script, "1")
    runs.touch()
    command = [sys.executable, "-S", "-c", HOST, str(script), str(runs)]
    keeping = asyncio.create_task(keep_running(command, app))
    await eventually(lambda: runs.read_text() == "1")
    write(script, " broken")

    def is_waiting() -> bool:
        nonlocal said
        said += capsys.readouterr().out
        return "the host ended (1); waiting for a change" in said

    await eventually(is_waiting)
    write(script, " 22")
    await eventually(lambda: runs.read_text() == "1 broken 22")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await keeping == 0
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(signum)
