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
from localazure.machinelearning.jobs.processes import FOLDER_VARIABLE
from localazure.supervision.supervisor import READY_TIMEOUT_SECONDS

START_TIMEOUT_SECONDS = 2 * READY_TIMEOUT_SECONDS
"""For the services and then the host: `up` fails if one of them takes longer."""


def processes_of(state: Path) -> list[psutil.Process]:
    """Return all processes of a state folder, including orphans and processes of jobs."""
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
    """Return the processes that have not ended. A zombie has ended."""
    running: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


class Runtime(ChildProcess):
    """A `localazure up` process."""

    def __init__(self, app: Path, state: Path, *arguments: str) -> None:
        command = [
            *(sys.executable, "-m", "localazure", "up", "--app", str(app)),
            *("--state", str(state), *arguments),
        ]
        super().__init__(command, state.with_name(f"{state.name}-up.log"))
        self.app = app
        self.state = state

    def part(self, name: str) -> psutil.Process | None:
        """Return the process of a part; None if it does not run."""
        for process in processes_of(self.state):
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[1:4] == ["-m", "localazure.supervision.part", name]:
                    return process
        return None

    def processes(self) -> list[psutil.Process]:
        """Return the processes of the supervisor, the parts and their children."""
        supervisor = psutil.Process(self.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def endpoints(self) -> dict[str, Any]:
        """Wait until all parts are ready; return the content of `endpoints.json`."""
        # The file may be left over from a killed runtime.
        self.wait_for_output("ready; Ctrl-C ends it", START_TIMEOUT_SECONDS)
        return json.loads((self.state / "endpoints.json").read_text())

    def kill_everything(self) -> None:
        """Send SIGKILL to the supervisor, all parts, Azurite, and all processes of jobs."""
        for process in (psutil.Process(self.pid), *processes_of(self.state)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.wait()
        self.wait_for_the_last(seconds=10)

    def wait_for_the_last(self, seconds: float) -> None:
        """Wait until the state folder has no processes."""
        until(lambda: not processes_of(self.state), seconds, f"end of all on {self.state}")

    def __exit__(self, *exception: object) -> None:
        try:
            super().__exit__(*exception)
        finally:
            for process in processes_of(self.state):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
