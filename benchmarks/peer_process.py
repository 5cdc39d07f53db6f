"""Another engine as a process of its own, driven through `benchmarks.peers.line_protocol`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.child_process import wait_or_kill
from benchmarks.harness import Skipped
from benchmarks.host_process import REPOSITORY

ENVIRONMENT = REPOSITORY / ".venv" / "peers"
STOP_TIMEOUT_SECONDS = 10.0


class PeerProcess:
    """A peer, ready once entered.

    Args:
        name: for the table.
        module: in `benchmarks.peers`.
        state: folder for its state and log.

    Raises:
        Skipped: its environment is not installed, it does not start or has ended, or it lacks the
            measured feature.
    """

    def __init__(self, name: str, module: str, state: Path) -> None:
        self.name = name
        self._module = module
        self._state = state
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        python = ENVIRONMENT / "bin" / "python"
        if not python.exists():
            raise Skipped(f"{python} is missing: `make bench` sets it up")
        self._state.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with (self._state / "peer.log").open("wb") as log:
            self.process = psutil.Popen(
                [str(python), "-m", f"benchmarks.peers.{self._module}", str(self._state)],
                cwd=REPOSITORY,
                # localazure is not installed there; what peers use of it needs no packages.
                env={**os.environ, "PYTHONPATH": str(REPOSITORY / "localazure" / "src")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self._answer()
        except BaseException:
            self._stop()
            raise
        self.ready_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def chains(self, count: int) -> float:
        """Seconds of so many at once: see `benchmarks.peers.line_protocol.Peer`."""
        return self._ask("chains", count)

    def serial(self, count: int) -> list[float]:
        """Milliseconds of each chain."""
        return self._ask("serial", count)

    def fan_out(self, width: int) -> float:
        """Seconds."""
        return self._ask("fan_out", width)

    def events(self, count: int) -> list[float]:
        """Milliseconds of each event."""
        return self._ask("events", count)

    def _ask(self, measure: str, count: int) -> Any:
        with contextlib.suppress(BrokenPipeError):  # it ended; its last line has the reason
            self.process.stdin.write(json.dumps({"measure": measure, "count": count}) + "\n")
            self.process.stdin.flush()
        answer = self._answer()
        if "skipped" in answer:
            raise Skipped(answer["skipped"])
        return answer["result"]

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            tail = (self._state / "peer.log").read_text("utf-8", "replace")[-500:]
            raise Skipped(f"{self.name} ended: {tail}")
        return json.loads(line)

    def _stop(self) -> None:
        # The end of stdin ends it and its descendants.
        self.process.stdin.close()
        wait_or_kill(self.process, STOP_TIMEOUT_SECONDS)
        self.process.stdout.close()
