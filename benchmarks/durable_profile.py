"""A profile of the Functions host while 200 chains are in flight."""

from __future__ import annotations

import json
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.durable import IN_FLIGHT
from benchmarks.harness import Bench, Sample
from benchmarks.host_process import HostProcess
from benchmarks.profile_shares import IDLE, OWNERS

SAMPLED_HOST = ("-m", "benchmarks.sampled_host")
RESULT_TIMEOUT_SECONDS = 10.0


def measure(bench: Bench) -> None:
    """Shares of the time of the host's event loop thread: `make bench NAME=durable-profile`.

    The load is that of `durable`: bursts of 200 chains of 6 no-op steps. The thread's stack is
    sampled every millisecond; the innermost frame with a known owner counts. Shares are % of the
    samples in which the loop did not wait. The CPU time of threads is the kernel's.
    """
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with HostProcess(state, command=SAMPLED_HOST) as host:
            host.chains(50)
            contenders = {"host": lambda: _one_turn(host, state / "profile.json")}
            bench.compare(contenders, bench.rounds(5, 1))
    bench.result.lines.sort(key=lambda line: -line.spread.median)


def _one_turn(host: HostProcess, result: Path) -> Sample:
    result.unlink(missing_ok=True)
    host.process.send_signal(signal.SIGUSR1)
    host.chains(IN_FLIGHT)
    host.process.send_signal(signal.SIGUSR1)
    return _shares(_wait_for(result))


def _wait_for(result: Path) -> dict[str, Any]:
    deadline = time.monotonic() + RESULT_TIMEOUT_SECONDS
    while not result.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the sampled host did not write {result}")
        time.sleep(0.01)
    return json.loads(result.read_text("utf-8"))


def _shares(profile: dict[str, Any]) -> Sample:
    samples: dict[str, int] = profile["samples"]
    waiting = samples.pop(IDLE, 0)
    busy = sum(samples.values())
    shares = {
        f"{owner}, % of the loop's work": 100 * samples.get(owner, 0) / busy for owner in OWNERS
    }
    shares["event loop waits, % of the time"] = 100 * waiting / (busy + waiting)
    for thread, cpu_ms in profile["cpu_ms_by_thread"].items():
        if cpu_ms:
            shares[f"thread {thread}, ms of CPU a chain"] = cpu_ms / IN_FLIGHT
    return shares
