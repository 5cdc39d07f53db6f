"""`start --hosts N`: several host processes of one app on one port, and the engine that they share.

A killed process is replaced, as on Azure. SIGTERM or SIGINT ends all hosts, and then the engine. An
error of one process also ends all of them, because the others would fail with it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from localazure.functions.http.authorization import KeyRing
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import die_with_parent, end
from localazure.processes.ports import unix_socket
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.environment import ENGINE

# A host drains for at most 8 s.
STOP_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 1.0


async def run_hosts(
    command: Sequence[str], count: int, state: Path, notify: Callable[[str], None]
) -> int:
    """Run `count` hosts until SIGTERM or SIGINT; return 0, or the exit status of a failed process.

    Args:
        command: the command that runs one host; it ends on SIGTERM.
        count: the number of hosts.
        state: the folder that the hosts share; its keys are generated before the hosts start.
        notify: writes a log line.
    """
    make_state_folder(state)
    KeyRing.kept_in(state)
    stop, engine_stop = asyncio.Event(), asyncio.Event()
    end_on_signals(stop.set)

    async def keep(name: str, command: Sequence[str], stopped: asyncio.Event) -> int:
        status = await _keep_running(name, command, variables, stopped, notify)
        if status:
            stop.set()
        return status

    with unix_socket() as address:
        variables = {ENGINE: str(address)}
        engine_command = [sys.executable, "-m", "localazure.functions.durable.service", str(state)]
        engine = asyncio.create_task(keep("engine", engine_command, engine_stop))
        hosts = [keep(f"host {number}", command, stop) for number in range(1, count + 1)]
        statuses = await asyncio.gather(*hosts)
        engine_stop.set()
        return max(*statuses, await engine)


@contextlib.asynccontextmanager
async def host_process(
    command: Sequence[str], variables: Mapping[str, str]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a process with extra environment variables; end it on exit."""
    host = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **variables},
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the host
        preexec_fn=die_with_parent(),
    )
    try:
        yield host
    finally:
        await end(host, within_seconds=STOP_SECONDS)


async def _keep_running(
    name: str,
    command: Sequence[str],
    variables: Mapping[str, str],
    stop: asyncio.Event,
    notify: Callable[[str], None],
) -> int:
    stopping = asyncio.create_task(stop.wait())
    while not stop.is_set():
        async with host_process(command, variables) as process:
            notify(f"{name} is process {process.pid}")
            ended = asyncio.create_task(process.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            break
        if (status := process.returncode or 0) > 0:
            return status
        notify(f"{name} ended ({status}): starting it again")
        await asyncio.wait({stopping}, timeout=PAUSE_SECONDS)
    return 0
