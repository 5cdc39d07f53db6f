"""Waits for conditions by polling; the limits are longer on a busy machine (`patient`)."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from localazure.processes.pauses import patient

Answer = TypeVar("Answer")

# Most conditions send requests, which cost both sides milliseconds, or search all processes.
POLL_SECONDS = 0.1
ASYNC_POLL_SECONDS = 0.02
WAIT_SECONDS = 40.0


def until(
    question: Callable[[], Answer | Literal[False] | None],
    seconds: float = WAIT_SECONDS,
    what: str = "answer",
) -> Answer:
    """Poll until the answer to a question is truthy; return it."""
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        assert waited < patient(seconds), f"no {what} within {waited:g} s"
        time.sleep(POLL_SECONDS)
    return answer


async def eventually(question: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Poll until the answer to a question, which may be awaitable, is truthy; return it."""
    async with asyncio.timeout(patient(seconds)):
        while True:
            answer = question()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(ASYNC_POLL_SECONDS)
