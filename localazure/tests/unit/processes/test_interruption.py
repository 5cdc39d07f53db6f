from __future__ import annotations

import asyncio
import os
import signal

from localazure.processes.interruption import INTERRUPTED_STATUS, end_on_signals


async def test_a_second_ctrl_c_ends_at_once() -> None:
    seen: list[object] = []
    end_on_signals(
        lambda: seen.append("stop"),
        on_interrupt=lambda: seen.append("waits for"),
        end_now=seen.append,
    )
    try:
        for expected in (["waits for", "stop"], ["waits for", "stop", INTERRUPTED_STATUS]):
            os.kill(os.getpid(), signal.SIGINT)
            async with asyncio.timeout(10):
                while len(seen) < len(expected):
                    await asyncio.sleep(0)
            assert seen == expected
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            while seen[-1] != "stop":
                await asyncio.sleep(0)
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(signum)


async def test_ctrl_c_stops_although_nobody_reads_what_is_shown() -> None:
    stopped = asyncio.Event()

    def show() -> None:
        raise BrokenPipeError

    end_on_signals(stopped.set, on_interrupt=show)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(10):
            await stopped.wait()
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(signum)
