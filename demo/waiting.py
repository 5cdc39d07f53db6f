"""Polling of other processes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from localazure.processes.pauses import patient

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
        timeout_seconds: the limit on a machine of one's own, longer where others use it
            (`patient`); with `progress`, the limit of a time without any.
        what: the result's name, for the error.
        poll_seconds: the pause between two calls, or longer: as long as a call takes, so that what
            is slow gets half of the time for its work.
        progress: what has been achieved so far. It is called once per timeout: on a slow machine,
            the wait goes on as long as this value changes.

    Raises:
        TimeoutError: there was no result in time; the message says of what.
    """
    achieved = await progress() if progress else None
    since = time.monotonic()
    while True:
        try:
            async with asyncio.timeout(timeout_seconds):
                return await _poll(question, poll_seconds)
        except TimeoutError:
            waited = time.monotonic() - since
            before, achieved = achieved, await progress() if progress else None
            if achieved != before:
                since = time.monotonic()
            elif waited >= patient(timeout_seconds):
                without = " without any progress" if progress else ""
                raise TimeoutError(f"no {what} within {waited:.0f} s{without}") from None


async def _poll(
    question: Callable[[], Answer | None] | Callable[[], Awaitable[Answer | None]],
    poll_seconds: float,
) -> Answer:
    while True:
        began = time.monotonic()
        answer = question()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None and answer is not False:
            return cast("Answer", answer)
        await asyncio.sleep(max(poll_seconds, time.monotonic() - began))
