"""One part of localazure as a process of its own, started as the supervisor starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from harness.child_process import ChildProcess
from localazure.runtime.part import READY_FD_VARIABLE


class PartProcess(ChildProcess):
    """`python -m localazure.runtime.part NAME STATE`; its output goes to `STATE/NAME.log`."""

    def __init__(self, name: str, state: Path) -> None:
        command = [sys.executable, "-m", "localazure.runtime.part", name, str(state)]
        super().__init__(command, state / f"{name}.log")

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        ready, announce = os.pipe()
        self._start({READY_FD_VARIABLE: str(announce)}, [announce])
        os.close(announce)
        with os.fdopen(ready, "rb") as channel:
            assert channel.readline() == b"ready\n", f"it did not start:\n{self.output}"
