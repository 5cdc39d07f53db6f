"""Another engine as a process of its own, driven through `benchmarks.peers.line_protocol`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from benchmarks.child_process import REPOSITORY, child_process, log_tail
from benchmarks.harness import Skipped

ENVIRONMENT = REPOSITORY / ".venv" / "peers"
INSTALLED_HERE = frozenset({"durabletask_peer"})
"""Modules whose packages are in this environment."""


class PeerProcess:
    """A peer, ready once entered. See `benchmarks.peers.line_protocol.Peer` for its measures.

    Args:
        name: for the table.
        module: in `benchmarks.peers`.
        state: folder for its state and log.
        kind: which engine of the module, if it has several.

    Raises:
        Skipped: its environment is not installed, it does not start or has ended.
    """

    def __init__(self, name: str, module: str, state: Path, kind: str = "") -> None:
        self.name = name
        self._kind = kind
        self._module = module
        self._state = state
        self._stack = contextlib.ExitStack()
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        is_here = self._module in INSTALLED_HERE
        python = Path(sys.executable) if is_here else ENVIRONMENT / "bin" / "python"
        if not python.exists():
            raise Skipped(f"{python} is missing: `make bench` sets it up")
        self._state.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        command = [python, "-m", f"benchmarks.peers.{self._module}", self._state, self._kind]
        with contextlib.ExitStack() as stack:
            self.process = stack.enter_context(
                child_process(
                    self._module,
                    command,
                    self._state,
                    # localazure is not installed there; what peers use of it needs no packages.
                    env={**os.environ, "PYTHONPATH": str(REPOSITORY / "localazure" / "src")},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            self._answer()
            self._stack = stack.pop_all()
        self.ready_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, measure: str, count: int) -> Any:
        """Seconds of `chains` and `fan_out`, milliseconds of each of `serial`."""
        with contextlib.suppress(BrokenPipeError):  # it ended; its log has the reason
            self.process.stdin.write(json.dumps({"measure": measure, "count": count}) + "\n")
            self.process.stdin.flush()
        return self._answer()["result"]

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise Skipped(f"{self.name} ended: {log_tail(self._module, self._state)}")
        return json.loads(line)
