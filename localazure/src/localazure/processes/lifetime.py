"""Ends processes: children with their parent, children on request, and this process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

# A drain takes up to 8 s, and Docker sends SIGKILL 10 s after SIGTERM.
LAST_SECONDS = 1.0

RECYCLE_STATUS = 75
"""Exit status of a process that wants to be restarted at once (EX_TEMPFAIL of sysexits.h)."""


def die_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that lets the kernel kill the child when this process dies, even by kill -9.

    Linux only (prctl(2)); elsewhere it does nothing, and parts clean up when they restart.
    """
    parent = os.getpid()

    def arrange() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent died before this call
                os._exit(1)

    return arrange


async def end(process: asyncio.subprocess.Process, *, within_seconds: float) -> bool:
    """Send SIGTERM to a child, SIGKILL if it does not end in time, and wait for its end.

    Returns:
        Whether the child ended without SIGKILL.
    """
    _signal(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), within_seconds)
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()
        return False
    return True


def _signal(process: asyncio.subprocess.Process, signum: signal.Signals) -> None:
    """Send a signal to a child, unless it is known to have ended.

    Does not use `Process.send_signal`: before Python 3.13, it may collect the exit status before
    asyncio, which then warns on stderr and reports 255 (cpython issue 87744).
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signum)


@contextlib.contextmanager
def ends_soon_after(*, within_seconds: float) -> Generator[None]:
    """End this process soon after the block, even if threads of the app still run.

    Python would wait for them without limit: for threads of `asyncio.to_thread` when the event
    loop is closed, for others when the main thread ends. The delay is for a graceful shutdown.
    """
    status = 1
    try:
        yield
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else 1
        raise
    finally:
        timer = threading.Timer(within_seconds, os._exit, (status,))
        timer.daemon = True
        timer.start()
