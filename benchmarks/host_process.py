"""The Functions host as a process, measured over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import aiohttp

from benchmarks.child_process import child_process, log_tail
from benchmarks.harness import ProcessFailed
from localazure.processes.ports import free_ports

COMMAND = ("-m", "localazure", "start", str(Path(__file__).parent / "apps" / "chains"))
START_TIMEOUT_SECONDS = 60.0
# Concurrent requests that start orchestrations: a burst without a flood of sockets.
CONNECTIONS = 16
LIST_POLL_SECONDS = 0.005
# Polls for the end of all chains cost the host time. So polling starts after this fraction of the
# shortest time that the same number of chains has taken.
UNPOLLED_FRACTION = 0.8
# The query of a start that responds at the end: seconds to wait, and between polls.
WAIT = {"timeout": "60", "pollingInterval": "1"}


class HostProcess:
    """`python -m localazure start APP`; the host is ready when the context is entered.

    Args:
        state: folder for the host's state and log.
    """

    name = "localazure"

    def __init__(self, state: Path) -> None:
        self._state = state
        self._shortest_seconds: dict[int, float] = {}
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        self._state.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        began = time.monotonic()
        command = [sys.executable, *COMMAND, "--port", str(port), "--state", self._state]
        with contextlib.ExitStack() as stack:
            self._runner = stack.enter_context(asyncio.Runner())
            self.process = stack.enter_context(child_process(self.name, command, self._state))
            self._session = self._runner.run(_connect(f"http://127.0.0.1:{port}"))
            stack.callback(lambda: self._runner.run(self._session.close()))
            self._runner.run(self._wait_until_ready())
            self._stack = stack.pop_all()
        self.ready_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, measure: str, count: int) -> Any:
        """Seconds of `chains` and `fan_out`, milliseconds of each of `serial`."""
        measures = {
            "chains": self._chains,
            "serial": self._serial,
            "fan_out": self._fan_out,
        }
        return self._runner.run(measures[measure](count))

    async def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with self._session.get("/admin/host/status") as response:
                    if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                        return
            await asyncio.sleep(0.005)
        raise ProcessFailed(f"the host did not get ready:\n{log_tail(self.name, self._state)}")

    async def _start(self, name: str) -> None:
        async with self._session.post(f"/durabletask/orchestrators/{name}") as response:
            response.raise_for_status()

    async def _is_idle(self) -> bool:
        query = {"runtimeStatus": "Pending,Running", "top": "1"}
        async with self._session.get("/durabletask/instances/", params=query) as response:
            return not await response.json()

    async def _chains(self, count: int) -> float:
        shortest = self._shortest_seconds.get(count, 0.0)
        began = time.monotonic()
        await asyncio.gather(*(self._start("chain") for _ in range(count)))
        await asyncio.sleep(began + UNPOLLED_FRACTION * shortest - time.monotonic())
        while not await self._is_idle():
            await asyncio.sleep(LIST_POLL_SECONDS)
        seconds = time.monotonic() - began
        self._shortest_seconds[count] = min(seconds, shortest or seconds)
        return seconds

    async def _serial(self, count: int) -> list[float]:
        return [1000 * await self._seconds("chain") for _ in range(count)]

    async def _fan_out(self, width: int) -> float:
        return await self._seconds("fan_out", json.dumps(width))  # the encoding of aiohttp's client

    async def _seconds(self, orchestrator: str, body: object = None) -> float:
        """Return the seconds from the start of an orchestration to the response at its end."""
        began = time.monotonic()
        path = f"/durabletask/orchestrators/{orchestrator}"
        async with self._session.post(path, json=body, params=WAIT) as response:
            if response.status != HTTPStatus.OK:
                raise ProcessFailed(f"{orchestrator}: {response.status} {await response.text()}")
            await response.read()
        return time.monotonic() - began


async def _connect(url: str) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, limit_per_host=CONNECTIONS)
    return aiohttp.ClientSession(url, connector=connector)
