"""Waits for other processes: polls, since they cannot notify a test."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

Answer = TypeVar("Answer")

POLL_SECONDS = 0.05
WAIT_SECONDS = 40.0


def until(
    question: Callable[[], Answer | Literal[False] | None],
    seconds: float = WAIT_SECONDS,
    what: str = "answer",
) -> Answer:
    """The first answer to a question that is true; an empty one is not."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(POLL_SECONDS)
    return answer
