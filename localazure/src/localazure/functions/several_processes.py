"""`start --hosts N`: several hosts of one app, each a process of its own, on one port and task hub.

A host that is killed is replaced, as Azure does. SIGTERM or SIGINT ends them together, and so does
the error of one of them: the others would meet it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from localazure.functions.http.access_keys import KeyRing
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import die_with_parent, end
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.environment import HOSTS

# The host itself takes 8 s at most to drain.
STOP_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 1.0


async def run_hosts(
    command: Sequence[str], count: int, state: Path, notify: Callable[[str], None]
) -> int:
    """Run so many hosts until SIGTERM or SIGINT; the exit status, that of the error of a host.

    Args:
        command: what runs one of them; it ends on SIGTERM.
        count: how many.
        state: the folder that they share; its keys are made before any of them looks for them.
        notify: logs a line.
    """
    make_state_folder(state)
    KeyRing.kept_in(state)
    stop = asyncio.Event()
    end_on_signals(stop.set)
    async with asyncio.TaskGroup() as group:
        hosts = [
            group.create_task(_keep_running(command, count, stop, number, notify))
            for number in range(1, count + 1)
        ]
    return max(host.result() for host in hosts)


@contextlib.asynccontextmanager
async def host_process(
    command: Sequence[str], variables: Mapping[str, str]
) -> AsyncGenerator[asyncio.subprocess.Process]:
    """A host as a child process, with variables of its own; ended afterwards."""
    host = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **variables},
        start_new_session=True,  # Ctrl-C is for this process, which then ends the host
        preexec_fn=die_with_parent(),
    )
    try:
        yield host
    finally:
        await end(host, within_seconds=STOP_SECONDS)


async def _keep_running(
    command: Sequence[str],
    count: int,
    stop: asyncio.Event,
    number: int,
    notify: Callable[[str], None],
) -> int:
    stopping = asyncio.create_task(stop.wait())
    while not stop.is_set():
        async with host_process(command, {HOSTS: str(count)}) as host:
            notify(f"host {number} is process {host.pid}")
            ended = asyncio.create_task(host.wait())
            await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            break
        if (status := host.returncode or 0) > 0:
            stop.set()
            return status
        notify(f"host {number} ended ({status}): starting it again")
        await asyncio.wait({stopping}, timeout=PAUSE_SECONDS)
    return 0
