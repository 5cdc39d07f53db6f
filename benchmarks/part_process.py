"""Parts of localazure, each as the process that it is under `localazure up`, on free ports."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from benchmarks.child_process import wait_or_kill
from benchmarks.harness import ProcessFailed
from benchmarks.host_process import REPOSITORY
from localazure.runtime.environment import LOOPBACK, Environment

READY_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0


def draw_environment(state: Path, config: Path, app: Path = REPOSITORY) -> Environment:
    """An environment on free ports.

    Args:
        state: folder for all state.
        config: folder with the files of `infra/local`; a missing file declares nothing.
        app: folder of the app that the part `functions` runs.
    """
    state.mkdir(parents=True, exist_ok=True)
    environment = Environment.draw(state, app=app, config=config)
    environment.save()
    return environment


@contextlib.contextmanager
def running(environment: Environment, parts: Sequence[tuple[str, int]]) -> Generator[None]:
    """Have parts running: (name, the port that it listens on when it is ready).

    Raises:
        ProcessFailed: one of them does not start.
    """
    state = environment.state
    with contextlib.ExitStack() as stack:
        program = (sys.executable, "-m", "localazure.supervision.part")
        started = {
            name: stack.enter_context(_process(name, [*program, name, state], state))
            for name, _ in parts
        }
        for name, port in parts:
            _wait_for(name, port, started[name], state)
        yield


@contextlib.contextmanager
def running_command(
    name: str, command: Sequence[str | Path], port: int, folder: Path
) -> Generator[None]:
    """Have a program running that listens on a port; its log is in the folder.

    Raises:
        ProcessFailed: it does not start.
    """
    with _process(name, command, folder) as process:
        _wait_for(name, port, process, folder)
        yield


@contextlib.contextmanager
def _process(
    name: str, command: Sequence[str | Path], folder: Path
) -> Generator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        wait_or_kill(process, STOP_TIMEOUT_SECONDS)


def _wait_for(name: str, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((LOOPBACK, port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    tail = (folder / f"{name}.log").read_text("utf-8", "replace")[-2000:]
    raise ProcessFailed(f"{name} did not start:\n{tail}")
