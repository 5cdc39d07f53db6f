"""The cost of a step with few and with many instances in the store, and the memory of many."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.durable import IN_FLIGHT, STEPS_OF_A_CHAIN
from benchmarks.harness import Bench, Sample
from benchmarks.host_process import HostProcess
from benchmarks.usage import cpu_seconds

FEW, MANY = 100, 100_000
ORCHESTRATIONS, WARM_UP, AT_ONCE = 20_000, 2_500, 500


def measure(bench: Bench) -> None:
    """The engine with a growing store: `make bench NAME=durable-scale`.

    * chains/s, CPU ms a step: bursts of 200 chains of 6 steps, with 100 and with 100,000 finished
      instances in the store. 100 of them ran (one step each), the others are copies of these.
    * list of the unfinished, ms: the request for the running instances, when there are none.
    * RSS MiB after 2,500 and after 20,000 chains in one host, and store MiB at the end: once
      without purges, once with a purge of all finished instances after every 500 chains.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders: dict[str, Callable[[], Sample]] = {}
        for count in (FEW, MANY):
            _fill(folder / str(count), count)
            host = stack.enter_context(HostProcess(folder / str(count)))
            host.chains(IN_FLIGHT)
            contenders[f"{count:,} instances"] = partial(_beside, host)
        bench.compare(contenders, bench.rounds(5, 1))
    with tempfile.TemporaryDirectory() as name:
        total = 2 * AT_ONCE if bench.is_quick else ORCHESTRATIONS
        warm_up = AT_ONCE if bench.is_quick else WARM_UP
        grow = partial(_grow, warm_up=warm_up, total=total)
        contenders = {
            "kept": partial(grow, Path(name) / "kept", purges=False),
            "purged": partial(grow, Path(name) / "purged", purges=True),
        }
        bench.compare(contenders, 1)


def _fill(state: Path, count: int) -> None:
    """Fill a store with `count` finished instances."""
    with HostProcess(state) as host:
        host.wait(host.begin("first_step", FEW))
    copies = count // FEW - 1
    connection = sqlite3.connect(state / "durable.db")
    try:
        for table, ids in (("instances", 2), ("history", 1)):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = [f"{name} || '-' || value" for name in columns[:ids]] + columns[ids:]
            connection.execute(
                f"INSERT INTO {table} SELECT {', '.join(values)}"  # noqa: S608 - names of the schema
                f" FROM {table}, (WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL"
                " SELECT value + 1 FROM n WHERE value < ?) SELECT value FROM n WHERE ?)",
                (copies, copies > 0),
            )
        connection.commit()
    finally:
        connection.close()


def _beside(host: HostProcess) -> Sample:
    before = cpu_seconds(host.process)
    seconds = host.chains(IN_FLIGHT)
    used_seconds = cpu_seconds(host.process) - before
    began = time.monotonic()
    host.is_idle()
    return {
        "chains/s": IN_FLIGHT / seconds,
        "CPU ms a step": 1000 * used_seconds / IN_FLIGHT / STEPS_OF_A_CHAIN,
        "list of the unfinished, ms": (time.monotonic() - began) * 1000,
    }


def _grow(state: Path, *, warm_up: int, total: int, purges: bool) -> Sample:
    sample: dict[str, float] = {}
    with HostProcess(state) as host:
        for done in range(AT_ONCE, total + 1, AT_ONCE):
            host.chains(AT_ONCE)
            if purges:
                host.purge()
            if done in (warm_up, total):
                rss_mib = host.process.memory_info().rss / 2**20
                sample[f"RSS MiB after {done:,} chains"] = rss_mib
        files = state.glob("durable.db*")
        sample["store MiB"] = sum(file.stat().st_size for file in files) / 2**20
    return sample
