"""The durable engine against the disk and against other engines."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from benchmarks.floors import commits_per_second
from benchmarks.harness import Bench, Contender, Sample, Skipped, percentile
from benchmarks.host_process import HostProcess
from benchmarks.peer_process import PeerProcess
from benchmarks.peers import line_protocol
from benchmarks.usage import cpu_seconds, idle_usage

STEPS_OF_A_CHAIN = 6
IN_FLIGHT = 200
FAN_OUT = 200
PEERS = (
    ("DBOS, SQLite WAL", "dbos_peer"),
    ("durabletask, in memory", "durabletask_peer"),
    ("Restate", "restate_peer"),
)


class EngineProcess(line_protocol.Engine, Protocol):
    """An engine that is a process."""

    name: str
    process: psutil.Popen
    ready_seconds: float


def measure(bench: Bench) -> None:
    """Orchestrations that do nothing, on this host and on other engines: `make bench NAME=durable`.

    All engines are up at once and take turns; the others idle meanwhile. Ours is `python -m
    localazure start benchmarks/apps/chains` driven over HTTP, polled for the end of a chain.
    DBOS is driven in its own process, durabletask over gRPC, Restate over HTTP.

    * chains/s: 200 chains of 6 no-op steps in flight.
    * CPU ms a chain: of the engine's processes in such a burst, which other programs on the machine
      disturb least; with DBOS and durabletask the one who starts the chains is among them.
    * chain p50, p95 ms: one chain after the other, from the start to the known end.
    * fan-out steps/s: one orchestration with 200 steps at once.
    * event p50 ms: from a trigger outside of the engine to the first line of the first step; ours
      is an Event Grid delivery to a function that starts the orchestration, DBOS and durabletask
      are called directly.
    * commits/s: the floor, one-row transactions on bare SQLite, `synchronous=FULL`.
    * ready s, idle RSS, idle CPU: of the whole tree of processes, before any work.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _start_up(bench, folder / "start-up")
        engines = _enter_all(bench, stack, folder / "running")
        for engine in engines:  # code is loaded, files are made, caches are filled
            engine.chains(bench.rounds(50, 10))
            engine.fan_out(FAN_OUT)
            engine.events(3)
        rounds = bench.rounds(5, 1)
        serial = bench.rounds(30, 5)
        floor = Contender(
            "SQLite floor", lambda: {"commits/s": commits_per_second(folder / "floor")}
        )
        measures: list[Callable[[EngineProcess], Sample]] = [
            _throughput,
            lambda engine: _latency(engine, serial),
            _fan_out,
            lambda engine: _events(engine, serial),
        ]
        for one in measures:
            contenders = [
                Contender(engine.name, lambda engine=engine, one=one: one(engine))
                for engine in engines
            ]
            bench.compare([*contenders, floor] if one is _throughput else contenders, rounds)
    for line in bench.result.lines:
        if line.metric == "chains/s" and line.contender == HostProcess.name:
            steps = line.spread.median * STEPS_OF_A_CHAIN
            bench.note(f"{line.spread.median:.0f} chains/s are {steps:.0f} steps/s")


def _enter_all(bench: Bench, stack: contextlib.ExitStack, folder: Path) -> list[EngineProcess]:
    engines: list[EngineProcess] = [stack.enter_context(HostProcess(folder / "ours"))]
    for name, module in PEERS:
        try:
            engines.append(stack.enter_context(PeerProcess(name, module, folder / module)))
        except Skipped as reason:
            bench.note(f"{name} skipped: {reason}")
    return engines


def _start_up(bench: Bench, folder: Path) -> None:
    """Each engine alone, on a new folder for each turn."""
    turns = iter(range(1000))
    idle_seconds = 1.0 if bench.is_quick else 5.0

    def start(enter: Callable[[Path], contextlib.AbstractContextManager[EngineProcess]]) -> Sample:
        with enter(folder / str(next(turns))) as engine:
            time.sleep(idle_seconds)  # what a start leaves behind to be done is no idling
            usage = idle_usage(engine.process, idle_seconds)
            return {
                "ready s": engine.ready_seconds,
                "idle RSS MiB": usage.rss_mib,
                "idle CPU %": usage.cpu_percent,
            }

    contenders = [Contender(HostProcess.name, lambda: start(HostProcess))]
    for name, module in PEERS:
        contenders.append(
            Contender(
                name,
                lambda name=name, module=module: start(
                    lambda state: PeerProcess(name, module, state)
                ),
            )
        )
    bench.compare(contenders, bench.rounds(3, 1))


def _throughput(engine: EngineProcess) -> Sample:
    before = cpu_seconds(engine.process)
    seconds = engine.chains(IN_FLIGHT)
    used_seconds = cpu_seconds(engine.process) - before
    return {"chains/s": IN_FLIGHT / seconds, "CPU ms a chain": 1000 * used_seconds / IN_FLIGHT}


def _latency(engine: EngineProcess, count: int) -> Sample:
    return _percentiles("chain", engine.serial(count))


def _fan_out(engine: EngineProcess) -> Sample:
    return {"fan-out steps/s": FAN_OUT / engine.fan_out(FAN_OUT)}


def _events(engine: EngineProcess, count: int) -> Sample:
    return _percentiles("event to first step", engine.events(count))


def _percentiles(what: str, milliseconds: Sequence[float]) -> Sample:
    return {
        f"{what} p50 ms": percentile(milliseconds, 50),
        f"{what} p95 ms": percentile(milliseconds, 95),
    }
