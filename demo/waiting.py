"""Polling of other processes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

Answer = TypeVar("Answer")
POLL_SECONDS = 0.2
API_POLL_SECONDS = 0.5
"""For requests to the app: each takes it tens of milliseconds of processor time."""


async def eventually(
    question: Callable[[], Answer | None] | Callable[[], Awaitable[Answer | None]],
    timeout_seconds: float,
    what: str,
    poll_seconds: float = POLL_SECONDS,
) -> Answer:
    """Call a function until its result is neither None nor False, and return that result.

    Raises:
        TimeoutError: there was no result in time; the message says of what.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                answer = question()
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer is not None and answer is not False:
                    return cast("Answer", answer)
                await asyncio.sleep(poll_seconds)
    except TimeoutError:
        raise TimeoutError(f"no {what} within {timeout_seconds:.0f} s") from None
