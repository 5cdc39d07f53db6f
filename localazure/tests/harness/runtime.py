"""`python -m localazure up` as its user and the machine's process table see it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import psutil

from localazure.machinelearning.processes import FOLDER_VARIABLE

ROOT = Path(__file__).parents[3]
START_TIMEOUT_SECONDS = 90.0
# Each part is given 20 s before it is killed; nothing here should come near.
END_TIMEOUT_SECONDS = 45.0

Answer = TypeVar("Answer")


def until(question: Callable[[], Answer | None], seconds: float, what: str) -> Answer:
    """The first answer to a question; None and False are none yet."""
    deadline = time.monotonic() + seconds
    while True:
        answer = question()
        if answer is not None and answer is not False:
            return answer
        assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s"
        time.sleep(0.05)


def processes_of(state: Path) -> list[psutil.Process]:
    """Everything that works on a state folder, orphans and processes of jobs included."""
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
    """Those that have not ended; an orphan that nobody has reaped yet has."""
    running: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


@contextlib.contextmanager
def starting_interruptible() -> Generator[None]:
    """What is started inside can be interrupted, whoever started the tests.

    A shell without job control starts what runs in the background with SIGINT ignored, and that is
    handed on to every child (POSIX, Shell Command Language, 2.11).
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Runtime:
    """One `up`."""

    def __init__(self, app: Path, state: Path, *arguments: str) -> None:
        self.state = state
        self.log = state.with_name(f"{state.name}-up.log")
        with self.log.open("ab") as output, starting_interruptible():
            self._log_start_bytes = output.tell()
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "localazure", "up", "--app", str(app)),
                    *("--state", str(state), *arguments),
                ],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self.log.read_bytes()[self._log_start_bytes :].decode(errors="replace")

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
        """What stands in `endpoints.json`, once it is there."""

        def read() -> dict[str, Any] | None:
            assert self._process.poll() is None, f"it ended:\n{self.output}"
            # The file alone is no answer: a runtime that was killed leaves it behind.
            if "ready; Ctrl-C ends it" not in self.output:
                return None
            return json.loads((self.state / "endpoints.json").read_text())

        return until(read, START_TIMEOUT_SECONDS, f"endpoints.json (see {self.log})")

    def signal(self, signum: signal.Signals) -> None:
        self._process.send_signal(signum)

    def wait(self) -> int:
        """Wait for the supervisor's end; its exit status."""
        return self._process.wait(END_TIMEOUT_SECONDS)

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


@contextlib.contextmanager
def running(app: Path, state: Path, *arguments: str) -> Generator[Runtime]:
    """An `up` that leaves nothing behind, however the test went."""
    runtime = Runtime(app, state, *arguments)
    try:
        yield runtime
    finally:
        runtime.signal(signal.SIGTERM)
        try:
            runtime.wait()
        finally:
            for process in processes_of(state):
                process.kill()
