"""Starts, kills, stops and restarts processes for tests."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Self

from harness.waiting import until

REPOSITORY = Path(__file__).parents[3]
# The Functions host drains for 8 s, and `localazure up` gives each part 20 s.
END_SECONDS = 60.0


@contextlib.contextmanager
def _interruptible() -> Generator[None]:
    """Let SIGINT interrupt the processes that are started inside.

    A shell without job control makes background processes ignore SIGINT, and their children inherit
    this (POSIX, Shell Command Language, 2.11).
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class ChildProcess:
    """A process with its output in a log file. As a context manager, it kills the process at exit.

    Args:
        command: the program and its arguments.
        log: the file to which output is appended.
        folder: the working directory.
        variables: environment variables to add to those of this process.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        log: Path,
        *,
        folder: Path = REPOSITORY,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._command = command
        self.log = log
        self._folder = folder
        self._variables = variables or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start_bytes = 0

    def start(self) -> None:
        """Start or restart the process. Its stdin stays open until `end`."""
        self._start({})

    def _start(self, variables: Mapping[str, str], pass_fds: Sequence[int] = ()) -> None:
        with self.log.open("ab") as log, _interruptible():
            self._log_start_bytes = log.tell()
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env={**os.environ, **self._variables, **variables},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=pass_fds,
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process of the last start."""
        assert self._process is not None, "it was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """The output since the last start."""
        return self.log.read_bytes()[self._log_start_bytes :].decode(errors="replace")

    def wait_for_output(self, text: str, seconds: float) -> None:
        """Wait until the output contains a text."""

        def has_text() -> bool:
            found = text in self.output
            assert found or self.is_running, f"it ended without {text!r}:\n{self.output}"
            return found

        until(has_text, seconds, f"{text!r} in {self.log}")

    def send_signal(self, signum: signal.Signals) -> None:
        """Send a signal without waiting."""
        self.process.send_signal(signum)

    def kill(self) -> None:
        """Send SIGKILL without waiting."""
        self.process.kill()

    def wait(self, seconds: float = END_SECONDS) -> int:
        """Wait for the process's end; return the exit status, negative for a signal."""
        status = self.process.wait(seconds)
        assert self.process.stdin is not None
        self.process.stdin.close()
        return status

    def end(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """End the process with a signal, if it runs, and wait; return the exit status."""
        self.send_signal(signum)
        return self.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.end()
        finally:
            if self.is_running:
                self.kill()
                self.process.wait()
