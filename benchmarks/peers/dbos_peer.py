"""DBOS on SQLite: `python -m benchmarks.peers.dbos_peer STATE`.

The file is put into WAL mode beforehand, which is faster than DBOS's default. Workflows are
started in the engine's own process: DBOS is a library and needs no HTTP. Only an event
arrives over HTTP, to a web server in that process.
"""

# pyright: basic, reportMissingImports=false
# DBOS is not installed where the checker runs.

from __future__ import annotations

import asyncio
import functools
import http.client
import json
import os
import socket
import sqlite3
import sys
import threading
import time
import uuid
from http import HTTPStatus
from pathlib import Path

from aiohttp import web
from dbos import DBOS, SetWorkflowID, WorkflowHandle

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


@DBOS.step()
def clock() -> int:
    """CLOCK_MONOTONIC in ns."""
    return time.monotonic_ns()


@DBOS.workflow()
def first_step() -> int:
    """A step that returns its start time."""
    return clock()


class EventServer:
    """A web server in a thread that starts a workflow for each request, and a client of it."""

    def __init__(self) -> None:
        self._started: WorkflowHandle[int] | None = None
        listening = socket.create_server(("127.0.0.1", 0))
        self._client = http.client.HTTPConnection(*listening.getsockname())
        threading.Thread(target=asyncio.run, args=[self._serve(listening)], daemon=True).start()

    async def _serve(self, listening: socket.socket) -> None:
        app = web.Application()
        app.router.add_post("/events", self._on_event)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.SockSite(runner, listening).start()
        await asyncio.Event().wait()

    async def _on_event(self, request: web.Request) -> web.Response:
        await asyncio.to_thread(self._start, (await request.json())["id"])
        return web.Response(status=202)

    def _start(self, workflow: str) -> None:
        # In a thread: `start_workflow_async` takes several times as long.
        with SetWorkflowID(workflow):
            self._started = DBOS.start_workflow(first_step)

    def send(self, workflow: str) -> WorkflowHandle[int]:
        """Return when the workflow of that id has been started."""
        headers = {"Content-Type": "application/json"}
        self._client.request("POST", "/events", json.dumps({"id": workflow}), headers)
        response = self._client.getresponse()
        response.read()
        if response.status != HTTPStatus.ACCEPTED or self._started is None:
            raise RuntimeError(f"the event was answered with {response.status}")
        return self._started


class Dbos(Peer):
    """The engine, in this process."""

    @functools.cached_property
    def _events(self) -> EventServer:
        return EventServer()

    def start(self, workflow: str, argument: int = 0) -> WorkflowHandle[int]:
        """See `Peer`, of `chain`."""
        del workflow, argument
        return DBOS.start_workflow(chain)

    def end(self, started: WorkflowHandle[int]) -> int:
        """See `Peer`."""
        return started.get_result()

    def trigger(self) -> WorkflowHandle[int]:
        """See `Peer`."""
        return self._events.send(uuid.uuid4().hex)

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
