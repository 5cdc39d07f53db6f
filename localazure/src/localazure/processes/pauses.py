"""Pauses that an event ends, and limits of time on a busy machine."""

from __future__ import annotations

import asyncio
import contextlib
import os


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, with a limit; None: no limit."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def patient(seconds: float) -> float:
    """A limit of time, multiplied by the number of processes per core that want to run.

    It is what a process gets on a machine of its own, as far as the load of the last minute says.
    """
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
