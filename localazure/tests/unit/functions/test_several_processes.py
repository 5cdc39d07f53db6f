from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from harness.waiting import eventually
from localazure.functions import several_processes
from localazure.functions.several_processes import run_hosts


async def test_an_error_of_a_host_ends_all_with_its_status(tmp_path: Path) -> None:
    """One host ends with an error; the other one would run for a minute."""
    mark = tmp_path / "mark"
    script = (
        f"import os, sys, time\n"
        f"try: os.mkdir({str(mark)!r})\n"
        f"except FileExistsError: time.sleep(60)\n"
        f"sys.exit(3)"
    )
    lines: list[str] = []
    command = [sys.executable, "-c", script]
    assert await run_hosts(command, 2, tmp_path / "state", lines.append) == 3
    names = [line.partition(" is process")[0] for line in lines]
    assert sorted(names) == ["engine", "host 1", "host 2"]
    assert (tmp_path / "state" / "keys.json").exists()


async def test_a_killed_engine_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_processes, "PAUSE_SECONDS", 0)
    lines: list[str] = []
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    running = asyncio.create_task(run_hosts(command, 1, tmp_path / "state", lines.append))

    def engines() -> list[int]:
        return [int(line.split()[-1]) for line in lines if line.startswith("engine is process")]

    await eventually(engines)
    os.kill(engines()[0], signal.SIGKILL)
    await eventually(lambda: len(engines()) > 1)
    assert "engine ended (-9): starting it again" in lines
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
