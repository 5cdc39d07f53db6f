"""The Functions host as a process, measured over HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
import uuid
from collections.abc import Coroutine, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import psutil

from benchmarks.child_process import wait_or_kill
from benchmarks.harness import ProcessFailed
from localazure.processes.ports import free_ports

T = TypeVar("T")

REPOSITORY = Path(__file__).parent.parent
CHAINS_APP = Path(__file__).parent / "apps" / "chains"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 30.0
# Concurrent requests that start orchestrations: a burst without a flood of sockets.
CONNECTIONS = 16
POLL_SECONDS = 0.001
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
        command: Python arguments instead of `-m localazure start`; APP, --port and --state follow.
        app: the app's folder.
    """

    name = "localazure"

    def __init__(
        self,
        state: Path,
        *,
        command: Sequence[str] = ("-m", "localazure", "start"),
        app: Path = CHAINS_APP,
    ) -> None:
        self._state = state
        self._command = (*command, str(app))
        self._runner = asyncio.Runner()
        self._shortest_seconds: dict[int, float] = {}
        self.ready_seconds = 0.0

    def __enter__(self) -> Self:
        self._state.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        log = self._state / "host.log"
        began = time.monotonic()
        with log.open("wb") as output:
            self.process = psutil.Popen(
                [sys.executable, *self._command, "--port", str(port), "--state", str(self._state)],
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
            )
        try:
            self._session = self._run(self._connect())
            self._run(self._wait_until_ready(log))
        except BaseException:
            self._stop()
            raise
        self.ready_seconds = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._session.close())
        self._stop()

    def chains(self, count: int) -> float:
        """Run `count` chains at once; return the seconds from the first start to the last end."""
        return self._run(self._chains(count))

    def serial(self, count: int) -> list[float]:
        """Run `count` chains in sequence; return the milliseconds of each."""
        return self._run(self._serial(count))

    def fan_out(self, width: int) -> float:
        """Run an orchestration with `width` parallel steps; return its seconds."""
        return self._run(self._fan_out(width))

    def events(self, count: int) -> list[float]:
        """Deliver Event Grid events; return the milliseconds to each orchestration's first step."""
        return self._run(self._events(count))

    def begin(self, orchestrator: str, count: int) -> list[str]:
        """Start `count` orchestrations; return their instance ids."""
        return self._run(self._begin(orchestrator, count))

    def wait(self, instances: Sequence[str]) -> None:
        """Wait until all of these instances have completed."""
        for instance in instances:
            self._run(self._result(instance))

    def is_idle(self) -> bool:
        """Return whether all instances have finished."""
        return self._run(self._is_idle())

    def purge(self) -> None:
        """Delete all instances that have completed."""
        self._run(self._purge())

    def kill(self) -> None:
        """Kill the host with SIGKILL."""
        self.process.kill()
        self.process.wait()

    # --- HTTP requests -------------------------------------------------------------------------

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    async def _connect(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self._url, connector=aiohttp.TCPConnector(limit=CONNECTIONS, limit_per_host=CONNECTIONS)
        )

    async def _wait_until_ready(self, log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                async with self._session.get("/admin/host/status") as response:
                    if response.status < 500:  # noqa: PLR2004 - it answers
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.005)
        raise ProcessFailed(
            f"the host did not get ready:\n{log.read_text('utf-8', 'replace')[-2000:]}"
        )

    async def _start(self, name: str, body: object = None) -> str:
        instance = uuid.uuid4().hex
        path = f"/durabletask/orchestrators/{name}/{instance}"
        async with self._session.post(path, json=body) as response:
            response.raise_for_status()
        return instance

    async def _result(self, instance: str) -> Any:
        while True:
            async with self._session.get(f"/durabletask/instances/{instance}") as response:
                status = await response.json() if response.status != HTTPStatus.NOT_FOUND else {}
            if status.get("runtimeStatus") == "Completed":
                return status["output"]
            if status.get("runtimeStatus") == "Failed":
                raise ProcessFailed(f"{instance}: {status['output']}")
            await asyncio.sleep(POLL_SECONDS)

    async def _begin(self, orchestrator: str, count: int) -> list[str]:
        return await asyncio.gather(*(self._start(orchestrator) for _ in range(count)))

    async def _is_idle(self) -> bool:
        query = {"runtimeStatus": "Pending,Running", "top": "1"}
        async with self._session.get("/durabletask/instances/", params=query) as response:
            return not await response.json()

    async def _purge(self) -> None:
        query = {"createdTimeFrom": "2026-01-01T00:00:00Z", "runtimeStatus": "Completed"}
        async with self._session.delete("/durabletask/instances/", params=query) as response:
            response.raise_for_status()

    async def _chains(self, count: int) -> float:
        shortest = self._shortest_seconds.get(count, 0.0)
        began = time.monotonic()
        await self._begin("chain", count)
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

    async def _events(self, count: int) -> list[float]:
        milliseconds: list[float] = []
        for _ in range(count):
            instance = uuid.uuid4().hex
            event = {
                "id": instance,
                "topic": "/benchmark",
                "subject": "/benchmark",
                "eventType": "Benchmark",
                "eventTime": "2026-01-01T00:00:00Z",
                "data": {},
                "dataVersion": "1",
                "metadataVersion": "1",
            }
            began_ns = time.monotonic_ns()
            async with self._session.post(
                "/runtime/webhooks/EventGrid",
                params={"functionName": "on_event"},
                json=[event],
                headers={"aeg-event-type": "Notification"},
            ) as response:
                response.raise_for_status()
            first_step_ns = int(await self._result(instance))
            milliseconds.append((first_step_ns - began_ns) / 1e6)
        return milliseconds

    def _stop(self) -> None:
        self._runner.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            wait_or_kill(self.process, STOP_TIMEOUT_SECONDS)
