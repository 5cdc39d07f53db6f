"""The cost of a kill -9 of the Functions host: time and repeated work."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import Bench, Sample
from benchmarks.host_process import HostProcess
from localazure.functions.durable.engine import history
from localazure.functions.durable.engine.history import EventType

LEDGER_APP = Path(__file__).parent / "apps" / "ledger"
INSTANCES = 50
STEPS = 6
HALF_TIMEOUT_SECONDS = 60.0


def measure(bench: Bench) -> None:
    """A kill -9 after half of the steps of 50 chains: `make bench NAME=durable-recovery`.

    The chains have 6 steps of 5 ms, 300 in all. The host is killed as soon as 150 have begun, and
    restarted on the same state.

    * ready s: from the restart to the first HTTP response.
    * first step s, every chain has gone on s, all done s: from the restart to the first step, until
      each unfinished chain has begun a step, and to the end of all chains.
    * journaled steps run again: steps whose end was in a history at the kill and that began again.
      There must be none.
    * other steps run again: steps that had begun, or ended, without an end in a history.
    """
    with tempfile.TemporaryDirectory() as folder:
        turns = iter(range(1000))
        contenders = {HostProcess.name: lambda: _one_turn(Path(folder) / str(next(turns)))}
        bench.compare(contenders, bench.rounds(5, 1))


class _Line(NamedTuple):
    """A line of the ledger: one start of a step."""

    chain: str
    step: int
    began_ns: int


def _lines(ledger: Path) -> list[_Line]:
    text = ledger.read_text("utf-8") if ledger.exists() else ""
    fields = (line.split() for line in text.splitlines())
    return [_Line(chain, int(step), int(began_ns)) for chain, step, began_ns in fields]


def _one_turn(state: Path) -> Sample:
    ledger = state / "ledger"
    os.environ["LEDGER"] = str(ledger)
    with HostProcess(state, app=LEDGER_APP) as host:
        chains = host.begin("chain", INSTANCES)
        deadline = time.monotonic() + HALF_TIMEOUT_SECONDS
        while len(_lines(ledger)) < INSTANCES * STEPS // 2:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than half of the steps in {HALF_TIMEOUT_SECONDS} s")
            time.sleep(0.001)
        host.kill()
    before = _lines(ledger)
    journaled = _journaled(state, state / "copy")
    began_ns = time.monotonic_ns()
    with HostProcess(state, app=LEDGER_APP) as host:
        host.wait(chains)
        done_ns = time.monotonic_ns()
        ready_seconds = host.ready_seconds
    after = _lines(ledger)[len(before) :]
    first_ns: dict[str, int] = {}
    for line in sorted(after, key=lambda line: line.began_ns):
        first_ns.setdefault(line.chain, line.began_ns)
    begun = {line[:2] for line in before}
    again = [line[:2] for line in after if line[:2] in begun]
    repeated = sum(step in journaled for step in again)
    return {
        "ready s": ready_seconds,
        "first step s": (min(first_ns.values()) - began_ns) / 1e9,
        "every chain has gone on s": (max(first_ns.values()) - began_ns) / 1e9,
        "all done s": (done_ns - began_ns) / 1e9,
        "journaled steps run again": repeated,
        "other steps run again": len(again) - repeated,
    }


def _journaled(state: Path, scratch: Path) -> set[tuple[str, int]]:
    """Return chain and number of the steps whose end is in a history; reads a copy of the store."""
    scratch.mkdir()
    for file in state.glob("durable.db*"):
        shutil.copy(file, scratch)
    connection = sqlite3.connect(scratch / "durable.db")
    try:
        rows = connection.execute(
            "SELECT group_concat(events) FROM"
            " (SELECT execution_id, events FROM history ORDER BY execution_id, episode)"
            " GROUP BY execution_id"
        ).fetchall()
    finally:
        connection.close()
    found: set[tuple[str, int]] = set()
    for (text,) in rows:
        events = history.decode(text)
        ended = {event.get("TaskScheduledId") for event in events}
        for event in events:
            if event["EventType"] == EventType.TASK_SCHEDULED and event["EventId"] in ended:
                chain, step = json.loads(event["Input"]).split()
                found.add((chain, int(step)))
    return found
