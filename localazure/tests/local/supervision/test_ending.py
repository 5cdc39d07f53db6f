"""A runtime that is stopped during its start leaves no process."""

from __future__ import annotations

import signal
from pathlib import Path

from harness.runtime import Runtime, processes_of
from harness.waiting import until


def test_sigterm_during_the_start_ends_every_process(app: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Runtime(app, state, "--port-base", "0") as runtime:
        until(lambda: "is ready" in runtime.output, 60, "first part")
        assert "functions is ready" not in runtime.output
        runtime.send_signal(signal.SIGTERM)
        assert runtime.wait() == 0
        assert not processes_of(state)
        assert "Traceback" not in runtime.output
