"""`python -m localazure up` as a process, with its parts in the process table."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil

from harness.child_process import ChildProcess
from harness.waiting import until
from localazure.machinelearning.processes import FOLDER_VARIABLE
from localazure.runtime.supervisor import READY_TIMEOUT_SECONDS

START_TIMEOUT_SECONDS = 2 * READY_TIMEOUT_SECONDS
"""Of the services, then of the host: `up` ends by itself when one of them takes longer."""


def processes_of(state: Path) -> list[psutil.Process]:
    """All processes that work on a state folder, orphans and processes of jobs included."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            of_job = process.environ().get(FOLDER_VARIABLE, "").startswith(str(state))
            if of_job or any(word.startswith(str(state)) for word in process.cmdline()):
                found.append(process)
    return found


def still_running(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended; a zombie has."""
    running: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


class Runtime(ChildProcess):
    """One `up`."""

    def __init__(self, app: Path, state: Path, *arguments: str) -> None:
        command = [
            *(sys.executable, "-m", "localazure", "up", "--app", str(app)),
            *("--state", str(state), *arguments),
        ]
        super().__init__(command, state.with_name(f"{state.name}-up.log"))
        self.state = state

    def part(self, name: str) -> psutil.Process | None:
        """The process of a part, None while it has none."""
        for process in processes_of(self.state):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:4] == ["-m", "localazure.runtime.part", name]:
                    return process
        return None

    def processes(self) -> list[psutil.Process]:
        """The supervisor, the parts, and all that they have started."""
        supervisor = psutil.Process(self.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def endpoints(self) -> dict[str, Any]:
        """Content of `endpoints.json`, once everything is ready."""
        # The file alone proves nothing: a runtime that was killed leaves it behind.
        self.wait_for_output("ready; Ctrl-C ends it", START_TIMEOUT_SECONDS)
        return json.loads((self.state / "endpoints.json").read_text())

    def kill_everything(self) -> None:
        """Kill -9 the supervisor, every part, Azurite, and every process of a job."""
        for process in (psutil.Process(self.pid), *processes_of(self.state)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.wait()
        self.wait_for_the_last(seconds=10)

    def wait_for_the_last(self, seconds: float) -> None:
        """Until no process works on the state folder."""
        until(lambda: not processes_of(self.state), seconds, f"end of all on {self.state}")

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)
        finally:
            for process in processes_of(self.state):
                process.kill()
