"""A wait has a limit; with a measure of progress, the limit of a time without any."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import pytest

from demo.waiting import eventually
from localazure.processes.pauses import patient

SECONDS = 0.01


def achieving(*values: int) -> Callable[[], Awaitable[object]]:
    """A measure of progress: the values in turn, and then the last one again and again."""
    rest = iter(values)

    async def achieved() -> int:
        return next(rest, values[-1])

    return achieved


async def test_a_wait_goes_on_while_there_is_progress() -> None:
    progress = achieving(1, 2, 3, 4)
    achieved = 0

    async def count() -> object:
        nonlocal achieved
        achieved += 1
        return await progress()

    done = await eventually(lambda: achieved >= 4, SECONDS, "end", SECONDS / 10, count)
    assert done
    assert achieved == 4


async def test_a_wait_without_progress_ends() -> None:
    with pytest.raises(TimeoutError, match="no end within 0 s without any progress"):
        await eventually(lambda: None, SECONDS, "end", SECONDS / 10, achieving(1, 2, 2))
    with pytest.raises(TimeoutError, match=r"no end within 0 s$"):
        await eventually(lambda: None, SECONDS, "end", SECONDS / 10)


async def test_a_limit_of_time_grows_with_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten processes per core: a tenth of the machine.
    cores = os.cpu_count() or 1
    monkeypatch.setattr(os, "getloadavg", lambda: (10.0 * cores, 0.0, 0.0))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await eventually(lambda: None, SECONDS, "end", SECONDS / 10)
    assert time.monotonic() - began >= 10 * SECONDS
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.0, 0.0))
    assert patient(7.0) == 7.0
