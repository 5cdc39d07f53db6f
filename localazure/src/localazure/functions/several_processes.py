"""`start --hosts N`: several host processes of one app on one port and one task hub.

A killed host is replaced, as on Azure. SIGTERM or SIGINT ends all hosts. An error of one host also
ends all of them, because the others would fail with it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from localazure.functions.http.authorization import KeyRing
from localazure.processes.interruption import end_on_signals
from localazure.processes.lifetime import die_with_parent, end
from localazure.processes.state_folder import make_state_folder
from localazure.runtime.environment import HOSTS

# A host drains for at most 8 s.
STOP_SECONDS: Final = 15.0
PAUSE_SECONDS: Final = 1.0


async def run_hosts(
    command: Sequence[str], count: int, state: Path, notify: Callable[[str], None]
) -> int:
    """Run `count` hosts until SIGTERM or SIGINT; return 0, or the exit status of a failed host.

    Args:
        command: the command that runs one host; it ends on SIGTERM.
        count: the number of hosts.
        state: the folder that the hosts share; its keys are generated before the hosts start.
        notify: writes a log line.
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
    """Run a host as a child process with extra environment variables; end it on exit."""
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
