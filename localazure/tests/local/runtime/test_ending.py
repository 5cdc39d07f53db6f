"""A stopped runtime leaves no process; the next runtime continues with its state."""

from __future__ import annotations

import signal
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.runtime import Runtime, processes_of, still_running
from harness.waiting import until


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read()


def test_sigterm_during_the_start_ends_every_process(app: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Runtime(app, state, "--port-base", "0") as runtime:
        until(lambda: "is ready" in runtime.output, 60, "first part")
        assert "functions is ready" not in runtime.output
        runtime.send_signal(signal.SIGTERM)
        assert runtime.wait() == 0
        assert not processes_of(state)
        assert "Traceback" not in runtime.output


def test_parts_end_in_seconds_after_their_supervisor_and_the_next_up_waits_for_them(
    app: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with Runtime(app, state, "--port-base", "0") as killed, ThreadPoolExecutor() as executor:
        endpoints = killed.endpoints()
        processes = killed.processes()
        release = tmp_path / "release"
        url = f"{endpoints['functions']['base_url']}/api/slow?until={release}"
        answer = executor.submit(get, url)
        log = state / "logs" / "functions.log"
        until(lambda: "slow has begun" in log.read_text(), 30, "begin of the invocation")
        killed.kill()
        killed.wait()
        # Start the next one while a part drains: it must wait for the ports and databases.
        with Runtime(app, state) as successor:
            # On a slow machine, the old parts end before the next runtime checks the lock.
            waiting = f"process {killed.pid} was killed; waiting"
            until(lambda: waiting in successor.output or "is ready" in successor.output, 60, "line")
            release.touch()
            again = successor.endpoints()
            assert not still_running(processes)
            assert again == endpoints
            assert answer.result() == b"done"
            # The next one is killed, too, with idle parts.
            successor.kill()
            successor.wait()
            successor.wait_for_the_last(seconds=15)
