from __future__ import annotations

import asyncio
import gc

import psutil
import pytest

from localazure.errors import StartError
from localazure.processes import memory

PIECE_BYTES = 256 * 1024
PIECES = 600


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


async def test_garbage_of_few_and_large_objects_is_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Make garbage with too few objects to trigger a collection by Python."""
    monkeypatch.setattr(memory, "CHECK_SECONDS", 0.001)
    async with memory.kept_low():
        before = most = resident_bytes()
        for _ in range(PIECES):
            cycle: list[object] = [b"x" * PIECE_BYTES]
            cycle.append(cycle)
            await asyncio.sleep(0.002)
            most = max(most, resident_bytes())
        assert most - before < PIECES * PIECE_BYTES / 3


async def test_cycles_are_collected_from_when_a_process_has_started() -> None:
    with memory.starting():
        assert not gc.isenabled()
        async with memory.kept_low():
            assert gc.isenabled()
    assert gc.isenabled()


def test_cycles_are_collected_after_a_start_that_failed() -> None:
    with pytest.raises(StartError), memory.starting():
        raise StartError
    assert gc.isenabled()
