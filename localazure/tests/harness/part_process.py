"""One part of localazure as a process of its own, started as the supervisor starts it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from localazure.runtime.part import READY_FD_VARIABLE

REPOSITORY = Path(__file__).parents[3]
STOP_SECONDS = 60.0


class PartProcess:
    """`python -m localazure.runtime.part NAME STATE`; its output goes to `STATE/NAME.log`.

    As a context manager it has started inside and has ended outside, by SIGTERM unless a test
    ended it before.
    """

    def __init__(self, name: str, state: Path) -> None:
        self.name = name
        self.state = state
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        ready, told = os.pipe()
        log_file = self.state / f"{self.name}.log"
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "localazure.runtime.part", self.name, str(self.state)],
                cwd=REPOSITORY,
                env={**os.environ, READY_FD_VARIABLE: str(told)},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[told],
            )
        os.close(told)
        with os.fdopen(ready, "rb") as channel:
            answer = channel.readline()
        assert answer == b"ready\n", f"{self.name} did not start:\n{log_file.read_text()}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9, and do not wait."""
        assert self._process is not None
        self._process.kill()

    def end(self, signum: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, unless it has ended, and wait."""
        assert self._process is not None
        self._process.send_signal(signum)
        self._process.wait(STOP_SECONDS)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
