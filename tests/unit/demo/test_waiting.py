"""A wait has a limit; with a measure of progress, the limit of a time without any."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from demo.waiting import eventually

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
