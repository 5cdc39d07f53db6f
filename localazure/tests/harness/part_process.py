"""Parts of localazure as processes, started like by the supervisor."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.child_process import ChildProcess
from harness.small_disk import SmallDisk
from localazure.supervision.part import READY_FD_VARIABLE


class PartProcess(ChildProcess):
    """`python -m localazure.supervision.part NAME STATE`; its output goes to `STATE/NAME.log`."""

    def __init__(self, name: str, state: Path, disk: SmallDisk | None = None) -> None:
        command = [sys.executable, "-m", "localazure.supervision.part", name, str(state)]
        super().__init__(disk.command(command) if disk else command, state / f"{name}.log")
        self._ready = -1

    def start(self) -> None:
        """Start the part, and wait until it is ready."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start the part without waiting."""
        self._ready, announce = os.pipe()
        self._start({READY_FD_VARIABLE: str(announce)}, [announce])
        os.close(announce)

    def wait_until_ready(self) -> None:
        """Wait for a part that was launched."""
        with os.fdopen(self._ready, "rb") as channel:
            assert channel.readline() == b"ready\n", f"it did not start:\n{self.output}"


@contextmanager
def running_parts(state: Path, *names: str) -> Generator[None]:
    """Run parts that start and stop in parallel."""
    parts = [PartProcess(name, state) for name in names]
    with ExitStack() as stack:
        for part in parts:
            part.launch()
            stack.push(part)  # ExitStack waits for it at the end
        for part in parts:
            part.wait_until_ready()
        yield
        for part in parts:
            part.send_signal(signal.SIGTERM)
