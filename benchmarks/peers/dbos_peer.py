"""DBOS on SQLite: `python -m benchmarks.peers.dbos_peer STATE`.

The file is put into WAL mode beforehand, which is faster than DBOS's default. Workflows are
started in the engine's own process: DBOS is a library and needs no HTTP.
"""

# pyright: basic, reportMissingImports=false
# DBOS is not installed where the checker runs.

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from pathlib import Path

from dbos import DBOS, WorkflowHandle

from benchmarks.peers.line_protocol import Peer, milliseconds, serve

STEPS = 6


@DBOS.step()
def step(value: int) -> int:
    """A step without work."""
    return value + 1


@DBOS.step()
async def step_async(value: int) -> int:
    """A step without work, for a fan-out."""
    return value + 1


@DBOS.workflow()
def chain() -> int:
    """Six steps, one after the other."""
    value = 0
    for _ in range(STEPS):
        value = step(value)
    return value


@DBOS.workflow()
async def fan_out(width: int) -> int:
    """Run the steps in parallel by asyncio.gather, as in DBOS's documentation."""
    return len(await asyncio.gather(*(step_async(number) for number in range(width))))


class Dbos(Peer):
    """The engine, in this process."""

    def start(self, workflow: str, argument: int = 0) -> WorkflowHandle[int]:
        """See `Peer`, of `chain`."""
        del workflow, argument
        return DBOS.start_workflow(chain)

    def end(self, started: WorkflowHandle[int]) -> int:
        """See `Peer`."""
        return started.get_result()

    def fan_out(self, width: int) -> float:
        """See `Peer`: of steps that are coroutines."""

        async def run() -> None:
            handle = await DBOS.start_workflow_async(fan_out, width)
            await handle.get_result()

        return milliseconds(lambda: asyncio.run(run())) / 1000


def main() -> None:
    """Run the command line above."""
    state = Path(sys.argv[1])
    file = state / "dbos.sqlite"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": f"sqlite:///{file}",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    serve(Dbos())
    sys.stdout.flush()
    os._exit(0)  # its pools of threads are of no further use


if __name__ == "__main__":
    main()
