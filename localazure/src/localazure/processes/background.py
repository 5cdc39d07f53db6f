"""Work in the background, which nothing awaits: it must not end in silence."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 30.0
FAILURES_ALLOWED: Final = 12
"""In a row: about two minutes, in which a full disk may get room again."""
HEALTHY_SECONDS: Final = 60.0
"""After so long without a failure, the next one is the first of a new row."""


def _end_process() -> None:
    signal.raise_signal(signal.SIGTERM)


async def keep_doing(
    what: str,
    work: Callable[[], Awaitable[Result]],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    end_process: Callable[[], None] = _end_process,
) -> Result:
    """Do work until it returns. After an exception, log it and do the work again.

    If it fails too often in a row, end the process gracefully (SIGTERM): its supervisor starts it
    again, or says that it cannot. The work then continues from what is on the disk.

    Args:
        what: names the work in the log.
        work: may be done again after it failed at any point.
        sleep: waits for seconds.
        clock: monotonic seconds.
        end_process: ends this process.

    Raises:
        Exception: the last failure, after `end_process`.
    """
    failures = 0
    while True:
        started = clock()
        try:
            return await work()
        except Exception as error:
            failures = 1 if clock() - started >= HEALTHY_SECONDS else failures + 1
            if failures > FAILURES_ALLOWED:
                logger.critical("%s failed %d times in a row: this process ends", what, failures)
                end_process()
                raise
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS)
            # The stack is of use once; further lines only say that it is not over.
            logger.error(  # noqa: TRY400 - see above
                "%s failed and is done again in %g s: %s: %s",
                what,
                pause,
                type(error).__name__,
                error,
                exc_info=error if failures == 1 else None,
            )
            await sleep(pause)


@contextlib.asynccontextmanager
async def doing(what: str, work: Callable[[], Awaitable[Any]]) -> AsyncGenerator[None]:
    """`keep_doing` work while the context lasts."""
    task = asyncio.create_task(keep_doing(what, work))
    try:
        yield
    finally:
        await cancel(task)


async def cancel(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and wait for their ends, however they end. None: it was never begun."""
    begun = [task for task in tasks if task is not None]
    for task in begun:
        task.cancel()
    await asyncio.gather(*begun, return_exceptions=True)
