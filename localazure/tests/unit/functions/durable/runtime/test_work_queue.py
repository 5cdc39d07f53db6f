"""Work by key: limits, repetition, failure and stop."""

from __future__ import annotations

import asyncio

import pytest

from localazure.functions.durable.runtime import work_queue
from localazure.functions.durable.runtime.work_queue import WorkQueue


async def test_one_at_a_time_for_each_key_and_so_many_in_all() -> None:
    running: list[str] = []
    most = 0
    done: list[str] = []

    async def work(key: str) -> None:
        nonlocal most
        assert key not in running
        running.append(key)
        most = max(most, len(running))
        await asyncio.sleep(0)
        running.remove(key)
        done.append(key)

    queue = WorkQueue("test", 2, work)
    for key in "abcaba":
        queue.request(key)  # running work runs once more afterwards
    await asyncio.sleep(0)
    queue.request("a")
    while running or len(done) < 5:
        await asyncio.sleep(0)
    await queue.stop(1)
    assert most == 2
    assert sorted(done) == ["a", "a", "b", "b", "c"]


async def test_what_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work_queue, "RETRY_SECONDS", 0.001)
    tries = 0
    succeeded = asyncio.Event()

    async def work(_: str) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("disk full")
        succeeded.set()

    queue = WorkQueue("test", 1, work)
    queue.request("a")
    await asyncio.wait_for(succeeded.wait(), 10)
    await queue.stop(1)
    assert caplog.text.count("disk full") >= 2


async def test_the_end_waits_then_cancels() -> None:
    cancelled: list[str] = []

    async def work(key: str) -> None:
        try:
            await asyncio.sleep(0 if key == "short" else 3600)
        except asyncio.CancelledError:
            cancelled.append(key)
            raise

    queue = WorkQueue("test", 5, work)
    queue.request("short")
    queue.request("long")
    queue.request_later("never", 3600)
    await asyncio.sleep(0)
    await queue.stop(0.01)
    queue.request("after")
    assert cancelled == ["long"]
