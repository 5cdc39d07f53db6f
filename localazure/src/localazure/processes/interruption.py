"""SIGTERM and SIGINT in a process that shuts down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

INTERRUPTED_STATUS: Final = 128 + signal.SIGINT


def end_on_signals(
    stop: Callable[[], object],
    *,
    on_interrupt: Callable[[], None] = lambda: None,
    end_now: Callable[[int], object] = os._exit,
) -> None:
    """Shut down gracefully on SIGTERM and the first SIGINT (Ctrl-C), at once on a second SIGINT.

    Args:
        stop: starts the graceful shutdown.
        on_interrupt: called at the first SIGINT, to show what the shutdown waits for.
        end_now: ends the process with a status.
    """
    loop = asyncio.get_running_loop()
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            end_now(INTERRUPTED_STATUS)
            return
        with contextlib.suppress(OSError):  # nobody reads what it shows: `… | head` has ended
            on_interrupt()
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)
