"""SIGTERM and SIGINT in a process that has work to finish first."""

from __future__ import annotations

import asyncio
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
    """Have SIGTERM and the first SIGINT (Ctrl-C) begin an orderly end, and a second SIGINT end all.

    Args:
        stop: begins the orderly end.
        on_interrupt: called at the first SIGINT, to show what the end waits for.
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
        on_interrupt()
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, interrupt)
