"""Processes that a benchmark starts, among them the parts of localazure."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import ProcessFailed
from localazure.runtime.environment import LOOPBACK, Environment

REPOSITORY = Path(__file__).parent.parent
READY_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0


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
            name: stack.enter_context(child_process(name, [*program, name, state], state))
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
    with child_process(name, command, folder) as process:
        _wait_for(name, port, process, folder)
        yield


@contextlib.contextmanager
def child_process(
    name: str, command: Sequence[str | Path], folder: Path, **options: Any
) -> Generator[psutil.Popen]:
    """Have a program running; it is terminated at exit, and killed if it does not end.

    Args:
        name: of the program and its log, `<folder>/<name>.log`.
        command: the program with its arguments.
        folder: for the log.
        options: of `subprocess.Popen`; by default stdin is empty, and stdout goes to the log.
    """
    with (folder / f"{name}.log").open("wb") as log:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        process = psutil.Popen([*map(str, command)], cwd=REPOSITORY, **streams | options)
    try:
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()  # which ends peers and what they started
        else:
            process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()


def log_tail(name: str, folder: Path) -> str:
    """The end of a program's log."""
    return (folder / f"{name}.log").read_text("utf-8", "replace")[-2000:]


def _wait_for(name: str, port: int, process: psutil.Popen, folder: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((LOOPBACK, port)).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise ProcessFailed(f"{name} did not start:\n{log_tail(name, folder)}")
