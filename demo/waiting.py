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
    progress: Callable[[], Awaitable[object]] | None = None,
) -> Answer:
    """Call a function until its result is neither None nor False, and return that result.

    Args:
        question: the function.
        timeout_seconds: the limit; with `progress`, the limit of a time without any.
        what: the result's name, for the error.
        poll_seconds: the pause between two calls.
        progress: what has been achieved so far. It is called once per timeout: on a slow machine,
            the wait goes on as long as this value changes.

    Raises:
        TimeoutError: there was no result in time; the message says of what.
    """
    achieved = await progress() if progress else None
    while True:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await _poll(question, poll_seconds)
        except TimeoutError:
            before, achieved = achieved, await progress() if progress else None
            if achieved == before:
                without = " without any progress" if progress else ""
                raise TimeoutError(f"no {what} within {timeout_seconds:.0f} s{without}") from None


async def _poll(
    question: Callable[[], Answer | None] | Callable[[], Awaitable[Answer | None]],
    poll_seconds: float,
) -> Answer:
    while True:
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None and answer is not False:
            return cast("Answer", answer)
        await asyncio.sleep(poll_seconds)
