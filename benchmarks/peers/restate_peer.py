"""Restate, its server and a service: `python -m benchmarks.peers.restate_peer STATE`.

Workflows are started over HTTP at its ingress, which answers when they have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.peers.line_protocol import Peer, serve
from localazure.processes.lifetime import die_with_parent
from localazure.processes.ports import free_ports

# The program itself: npm's wrapper would leave it behind when it is killed.
PACKAGES = Path(sys.prefix) / "node_modules" / "@restatedev"
SERVER = "restate-server-*/bin/restate-server"
READY_SECONDS = 30.0


class Restate(Peer):
    """Client of the ingress.

    Args:
        runner: the event loop that the client lives on.
        url: of the ingress.
    """

    def __init__(self, runner: asyncio.Runner, url: str) -> None:
        self._loop = runner.get_loop()
        self._session = runner.run(_session(url))

    async def _call(self, handler: str, argument: int) -> Any:
        async with self._session.post(f"/bench/{handler}", json=argument) as response:
            response.raise_for_status()
            return await response.json()

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._session.close())

    def start(self, workflow: str, argument: int = 0) -> asyncio.Task[Any]:
        """See `Peer`. Other workflows continue while this waits for one."""
        return self._loop.create_task(self._call(workflow, argument))

    def end(self, started: asyncio.Task[Any]) -> Any:
        """See `Peer`."""
        return self._loop.run_until_complete(started)


async def _session(url: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))


async def _register(admin_url: str, service_url: str) -> None:
    """Register the service with the server, as soon as both respond."""
    deadline = time.monotonic() + READY_SECONDS
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(
                    f"{admin_url}/deployments", json={"uri": service_url}
                ) as response:
                    if response.ok:
                        return
            if time.monotonic() > deadline:
                raise TimeoutError(f"the Restate server at {admin_url} did not get ready")
            await asyncio.sleep(0.02)


def main() -> None:
    """Run the command line above."""
    state = Path(sys.argv[1])
    server = next(iter(PACKAGES.glob(SERVER)), None)
    if server is None:
        raise SystemExit(f"the Restate server is missing in {PACKAGES}: `make bench` installs it")
    ingress, admin, node, service = free_ports(4)
    environment = {
        **os.environ,
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_BASE_DIR": str(state),
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LOG_FILTER": "error",
        "DO_NOT_TRACK": "1",
    }
    log = (state / "restate.log").open("wb")
    processes = [
        subprocess.Popen(
            [server],
            env=environment,
            cwd=state,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - no thread runs yet
        ),
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers.restate_service", str(service)],
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - the same
        ),
    ]
    try:
        with asyncio.Runner() as runner:
            runner.run(_register(f"http://127.0.0.1:{admin}", f"http://127.0.0.1:{service}"))
            engine = Restate(runner, f"http://127.0.0.1:{ingress}")
            serve(engine)
            engine.close()
    finally:
        for process in processes:
            process.kill()  # at SIGTERM the server takes a minute to leave its cluster of one
            process.wait()


if __name__ == "__main__":
    main()
