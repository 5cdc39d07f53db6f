"""However a runtime ends, nothing of it stays behind, and the next one goes on where it was."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.local.up.runtime import processes_of, running, still_running


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_every_process(app: Path, tmp_path: Path, signum: signal.Signals) -> None:
    state = tmp_path / "state"
    with running(app, state, "--port-base", "0") as runtime:
        runtime.endpoints()
        processes = runtime.processes()
        assert any("azurite" in " ".join(process.cmdline()) for process in processes)
        runtime.signal(signum)
        assert runtime.wait() == 0
        assert not still_running(processes)
        assert not processes_of(state)
        assert not (state / "endpoints.json").exists()
        assert "Traceback" not in runtime.output


def test_a_signal_while_it_starts_ends_every_process(app: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(app, state, "--port-base", "0") as runtime:
        while "is ready" not in runtime.output:  # the first part is; the Functions host is not
            assert runtime.part("functions") is None
        runtime.signal(signal.SIGTERM)
        assert runtime.wait() == 0
        assert not processes_of(state)
        assert "Traceback" not in runtime.output


def test_the_supervisors_death_ends_the_parts_and_the_next_up_waits_for_that(
    app: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with running(app, state, "--port-base", "0") as killed:
        endpoints = killed.endpoints()
        processes = killed.processes()
        killed.signal(signal.SIGKILL)
        killed.wait()
        # At once, while the parts still end: on the same ports, and on the same databases.
        with running(app, state) as successor:
            again = successor.endpoints()
            assert not still_running(processes)
            assert again == endpoints


def test_the_supervisors_death_ends_the_parts_in_seconds(app: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running(app, state, "--port-base", "0") as runtime:
        runtime.endpoints()
        runtime.signal(signal.SIGKILL)
        runtime.wait()
        runtime.wait_for_the_last(seconds=15)
