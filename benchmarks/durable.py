"""The durable engine, compared with the disk and with other engines."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from benchmarks.harness import Bench, Sample, Skipped, percentile
from benchmarks.host_process import HostProcess
from benchmarks.peer_process import PeerProcess

STEPS_OF_A_CHAIN = 6
IN_FLIGHT = 200
IN_SEQUENCE = 30
WIDTH = 200  # of a fan-out, in steps
COMMITS = 1000


@dataclass(frozen=True)
class Peer:
    """Another engine: its name, its module in `benchmarks.peers`, and which of the module's."""

    name: str
    module: str
    kind: str = ""

    def process(self, folder: Path) -> PeerProcess:
        """Create the engine's process, which is not entered yet, with its state in `folder`."""
        return PeerProcess(self.name, self.module, folder, self.kind)


PEERS = (
    Peer("localazure scheduler", "durabletask_peer", "scheduler"),
    Peer("durabletask in memory", "durabletask_peer", "memory"),
    Peer("DBOS, SQLite WAL", "dbos_peer"),
    Peer("Restate", "restate_peer"),
)
EngineProcess = HostProcess | PeerProcess


def measure(bench: Bench) -> None:
    """Orchestrations without work, on this host and on other engines: `make bench NAME=durable`.

    All engines run at once and take turns; the others idle. Ours is `python -m localazure start
    benchmarks/apps/chains`, driven over HTTP: a start responds at the end of the orchestration, or
    the list of instances is polled for the end of many chains.
    DBOS is driven in its own process, Restate over HTTP. `localazure scheduler` and the backend of
    the Durable Task SDK, which keeps nothing, are driven over gRPC by one process with client and
    worker; its start and memory count.

    * chains/s: 200 chains of 6 no-op steps in flight.
    * CPU ms a chain: CPU of the engine's processes in such a burst, the metric that other programs
      on the machine disturb least. With DBOS and the Durable Task SDK it includes the client.
    * chain p50, p95 ms: chains in sequence, from the start until the client knows the end.
    * fan-out steps/s: one orchestration with 200 steps at once.
    * commits/s: the floor, one-row transactions on bare SQLite, `synchronous=FULL`.
    * ready s, idle RSS, idle CPU: of the whole process tree, before any work.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _start_up(bench, folder / "start-up")
        engines = _enter_all(bench, stack, folder / "running")
        rounds = bench.rounds(5, 1)
        floor = {"SQLite floor": lambda: {"commits/s": _commits_per_second(folder / "floor")}}
        for one in (_throughput, _latency, _fan_out):
            for engine in engines:  # warm-up: loads code, creates files
                one(engine)
            contenders = {engine.name: partial(one, engine) for engine in engines}
            bench.compare(contenders | floor if one is _throughput else contenders, rounds)
    for line in bench.result.lines:
        if line.metric == "chains/s" and line.contender == HostProcess.name:
            steps = line.spread.median * STEPS_OF_A_CHAIN
            bench.note(f"{line.spread.median:.0f} chains/s are {steps:.0f} steps/s")


def _enter_all(bench: Bench, stack: contextlib.ExitStack, folder: Path) -> list[EngineProcess]:
    engines: list[EngineProcess] = [stack.enter_context(HostProcess(folder / "ours"))]
    for peer in PEERS:
        try:
            process = stack.enter_context(peer.process(folder / peer.name))
        except Skipped as reason:
            bench.note(f"{peer.name} skipped: {reason}")
        else:
            engines.append(process)
    return engines


def _start_up(bench: Bench, folder: Path) -> None:
    """Measure the start of each engine by itself, in a new folder for each turn."""
    turns = iter(range(1000))
    idle_seconds = 1.0 if bench.is_quick else 5.0

    def start(enter: Callable[[Path], contextlib.AbstractContextManager[EngineProcess]]) -> Sample:
        with enter(folder / str(next(turns))) as engine:
            time.sleep(idle_seconds)  # lets background work of the start finish
            return {"ready s": engine.ready_seconds, **_idle_usage(engine.process, idle_seconds)}

    contenders = {HostProcess.name: partial(start, HostProcess)}
    contenders |= {peer.name: partial(start, peer.process) for peer in PEERS}
    bench.compare(contenders, bench.rounds(3, 1))


def _throughput(engine: EngineProcess) -> Sample:
    before = _cpu_seconds(engine.process)
    seconds = engine.ask("chains", IN_FLIGHT)
    used_seconds = _cpu_seconds(engine.process) - before
    return {"chains/s": IN_FLIGHT / seconds, "CPU ms a chain": 1000 * used_seconds / IN_FLIGHT}


def _latency(engine: EngineProcess) -> Sample:
    milliseconds = engine.ask("serial", IN_SEQUENCE)
    return {f"chain p{each} ms": percentile(milliseconds, each) for each in (50, 95)}


def _fan_out(engine: EngineProcess) -> Sample:
    return {"fan-out steps/s": WIDTH / engine.ask("fan_out", WIDTH)}


def _idle_usage(process: psutil.Process, seconds: float) -> Sample:
    """Measure an idle process and its descendants for some seconds.

    Returns:
        The resident set, to which shared pages count for each process, and the CPU time, of which
        100 % is one core.
    """
    before = _cpu_seconds(process)
    began = time.monotonic()
    time.sleep(seconds)
    used = _cpu_seconds(process) - before
    rss_bytes = sum(each.memory_info().rss for each in _tree(process))
    cpu_percent = 100 * used / (time.monotonic() - began)
    return {"idle RSS MiB": rss_bytes / 2**20, "idle CPU %": cpu_percent}


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and all its living descendants since they started."""
    times = [each.cpu_times() for each in _tree(process)]
    return sum(each.user + each.system for each in times)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _commits_per_second(folder: Path) -> float:
    """Measure one-row transactions in sequence; return their number per second.

    A bare SQLite file in WAL mode with `synchronous=FULL`: each commit is an fdatasync.
    """
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (value TEXT)")
        began = time.perf_counter()
        for number in range(COMMITS):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows VALUES (?)", (f"row {number} of the floor",))
            connection.execute("COMMIT")
        return COMMITS / (time.perf_counter() - began)
    finally:
        connection.close()
