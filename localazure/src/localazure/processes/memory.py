"""Limits the garbage in a process's memory.

Python collects reference cycles after a number of new objects, regardless of their size. A request
that is refused while it is read leaves a cycle of few objects (error, traceback, frame), which
refer to the received data (256 KiB). So does a closed TLS connection. A client that sends only such
requests makes hundreds of MiB of garbage before a collection is due.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import sys
from collections.abc import AsyncGenerator, Generator
from typing import Final

import psutil

CHECK_SECONDS: Final = 0.5
GROWTH_BYTES: Final = 16 * 2**20


def _collect_and_return() -> None:
    """Collect all cycles, and return free memory to the system if the C library supports it."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # exists in glibc
        if trim is not None:
            trim(0)


@contextlib.contextmanager
def starting() -> Generator[None]:
    """Collect no cycles until the process enters `kept_low`.

    Imports make many objects and little garbage: to search them for cycles takes a quarter of the
    processor time of a start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.asynccontextmanager
async def kept_low() -> AsyncGenerator[None]:
    """Keep the memory of this process low. Enter it after all long-lived objects are loaded.

    The objects loaded by then are never searched for cycles again, not even at the process's end,
    so a collection takes only milliseconds.
    """
    gc.freeze()
    gc.enable()
    keeping = asyncio.create_task(_collect_on_growth())
    try:
        yield
    finally:
        keeping.cancel()


async def _collect_on_growth() -> None:
    process = psutil.Process()
    kept_bytes = process.memory_info().rss
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        used_bytes = process.memory_info().rss
        if used_bytes > kept_bytes + GROWTH_BYTES:
            _collect_and_return()
            kept_bytes = process.memory_info().rss
        else:
            kept_bytes = min(kept_bytes, used_bytes)
