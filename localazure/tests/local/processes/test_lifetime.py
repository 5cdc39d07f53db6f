from __future__ import annotations

import asyncio
import signal
import sys

import pytest

from localazure.processes.lifetime import end

TIMES = 200
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


async def test_a_child_that_ends_by_itself_meanwhile_has_its_own_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`end` may race with the child's exit: asyncio warns if other code collected the status."""
    statuses: set[int | None] = set()
    for _ in range(TIMES):
        child = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 3")
        assert await end(child, within_seconds=60)
        statuses.add(child.returncode)
    assert statuses <= {3, -signal.SIGTERM}
    assert not caplog.messages


async def test_a_child_that_ignores_sigterm_is_killed() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUBBORN, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    await child.stdout.readline()
    assert not await end(child, within_seconds=0.1)
    assert child.returncode == -signal.SIGKILL
    assert await end(child, within_seconds=0.1)  # the child has already ended
