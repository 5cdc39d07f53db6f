"""The durable engine, compared with the disk and with other engines."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.floors import commits_per_second
from benchmarks.harness import Bench, Sample, Skipped, percentile
from benchmarks.host_process import HostProcess
from benchmarks.peer_process import PeerProcess
from benchmarks.usage import cpu_seconds, idle_usage

STEPS_OF_A_CHAIN = 6
IN_FLIGHT = 200


@dataclass(frozen=True, kw_only=True)
class Load:
    """The work of an engine in one turn."""

    chains: int = IN_FLIGHT
    """Chains in flight at once."""
    serial: int = 30
    """Chains, and events, in sequence."""
    width: int = 200
    """Steps of a fan-out."""


@dataclass(frozen=True)
class Peer:
    """Another engine: its name, its module in `benchmarks.peers`, and its load."""

    name: str
    module: str
    load: Load = Load()

    def process(self, folder: Path) -> PeerProcess:
        """Create the engine's process, which is not entered yet, with its state in `folder`."""
        return PeerProcess(self.name, self.module, folder)


PEERS = (
    Peer("DBOS, SQLite WAL", "dbos_peer"),
    Peer("durabletask, in memory", "durabletask_peer"),
    Peer("Restate", "restate_peer"),
    Peer("Dagster, SQLite", "dagster_peer", Load(chains=8, serial=5, width=40)),
)


EngineProcess = HostProcess | PeerProcess


def measure(bench: Bench) -> None:
    """Orchestrations without work, on this host and on other engines: `make bench NAME=durable`.

    All engines run at once and take turns; the others idle. Ours is `python -m localazure start
    benchmarks/apps/chains`, driven over HTTP: a start responds at the end of the orchestration, or
    the list of instances is polled for the end of many chains.
    DBOS and Dagster are driven in their own process, durabletask over gRPC, Restate over HTTP.
    Dagster is two orders of magnitude slower and gets a smaller load: see `PEERS`.

    * chains/s: 200 chains of 6 no-op steps in flight.
    * CPU ms a chain: CPU of the engine's processes in such a burst, the metric that other programs
      on the machine disturb least. With DBOS and durabletask it includes the client.
    * chain p50, p95 ms: chains in sequence, from the start until the client knows the end.
    * fan-out steps/s: one orchestration with 200 steps at once.
    * event p50 ms: from a trigger outside of the engine to the first line of the first step. Ours
      is an Event Grid delivery to a function that starts the orchestration, DBOS's a request to a
      web server in its process, Restate's a request to its ingress, durabletask's a client call.
    * commits/s: the floor, one-row transactions on bare SQLite, `synchronous=FULL`.
    * ready s, idle RSS, idle CPU: of the whole process tree, before any work.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _start_up(bench, folder / "start-up")
        engines = _enter_all(bench, stack, folder / "running")
        rounds = bench.rounds(5, 1)
        floor = {"SQLite floor": lambda: {"commits/s": commits_per_second(folder / "floor")}}
        for one in (_throughput, _latency, _fan_out, _events):
            for engine, load in engines:  # warm-up: loads code, creates files
                with contextlib.suppress(Skipped):
                    one(engine, load)
            contenders = {engine.name: partial(one, engine, load) for engine, load in engines}
            bench.compare(contenders | floor if one is _throughput else contenders, rounds)
    for line in bench.result.lines:
        if line.metric == "chains/s" and line.contender == HostProcess.name:
            steps = line.spread.median * STEPS_OF_A_CHAIN
            bench.note(f"{line.spread.median:.0f} chains/s are {steps:.0f} steps/s")


def _enter_all(
    bench: Bench, stack: contextlib.ExitStack, folder: Path
) -> list[tuple[EngineProcess, Load]]:
    host = stack.enter_context(HostProcess(folder / "ours"))
    engines: list[tuple[EngineProcess, Load]] = [(host, Load())]
    for peer in PEERS:
        try:
            process = stack.enter_context(peer.process(folder / peer.module))
        except Skipped as reason:
            bench.note(f"{peer.name} skipped: {reason}")
        else:
            engines.append((process, peer.load))
    return engines


def _start_up(bench: Bench, folder: Path) -> None:
    """Measure the start of each engine by itself, in a new folder for each turn."""
    turns = iter(range(1000))
    idle_seconds = 1.0 if bench.is_quick else 5.0

    def start(enter: Callable[[Path], contextlib.AbstractContextManager[EngineProcess]]) -> Sample:
        with enter(folder / str(next(turns))) as engine:
            time.sleep(idle_seconds)  # lets background work of the start finish
            return {"ready s": engine.ready_seconds, **idle_usage(engine.process, idle_seconds)}

    contenders = {HostProcess.name: partial(start, HostProcess)}
    contenders |= {peer.name: partial(start, peer.process) for peer in PEERS}
    bench.compare(contenders, bench.rounds(3, 1))


def _throughput(engine: EngineProcess, load: Load) -> Sample:
    before = cpu_seconds(engine.process)
    seconds = engine.chains(load.chains)
    used_seconds = cpu_seconds(engine.process) - before
    return {"chains/s": load.chains / seconds, "CPU ms a chain": 1000 * used_seconds / load.chains}


def _latency(engine: EngineProcess, load: Load) -> Sample:
    return _percentiles("chain", engine.serial(load.serial))


def _fan_out(engine: EngineProcess, load: Load) -> Sample:
    return {"fan-out steps/s": load.width / engine.fan_out(load.width)}


def _events(engine: EngineProcess, load: Load) -> Sample:
    return _percentiles("event to first step", engine.events(load.serial))


def _percentiles(what: str, milliseconds: Sequence[float]) -> Sample:
    return {
        f"{what} p50 ms": percentile(milliseconds, 50),
        f"{what} p95 ms": percentile(milliseconds, 95),
    }
