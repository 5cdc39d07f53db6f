from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from localazure.functions.worker.thread_pool import WorkerPool, thread_count

_SETTING = "PYTHON_THREADPOOL_THREAD_COUNT"


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1.5", "9" * 30])
def test_a_count_that_is_none_is_told(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert thread_count({_SETTING: text}) == thread_count({})
    assert f"PYTHON_THREADPOOL_THREAD_COUNT is {text!r}, not a number" in caplog.text


def test_the_count_of_threads() -> None:
    assert [thread_count({_SETTING: text}) for text in ("1", " 4 ", "+2")] == [1, 4, 2]


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool("test", 2)
    yield pool
    pool.close()


async def test_results_and_errors_come_back(pool: WorkerPool) -> None:
    def fail() -> None:
        raise KeyError("x")

    def stop() -> None:
        raise StopIteration

    assert await pool.run(lambda: 1) == 1
    with pytest.raises(KeyError):
        await pool.run(fail)
    with pytest.raises(RuntimeError, match="StopIteration"):  # no future accepts it
        await pool.run(stop)
    assert await pool.run(lambda: 2) == 2


async def test_it_grows_to_its_size_and_no_further(pool: WorkerPool) -> None:
    meeting = threading.Barrier(2)
    threads: set[threading.Thread] = set()

    def meet() -> None:
        meeting.wait(30)
        threads.add(threading.current_thread())

    await asyncio.gather(*(pool.run(meet) for _ in range(6)))
    assert {thread.name for thread in threads} == {"test-1", "test-2"}
    assert all(thread.daemon for thread in threads)  # they do not delay the end of the process


async def test_a_cancelled_call_frees_its_thread_when_it_returns(pool: WorkerPool) -> None:
    started, release = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        release.wait(30)

    calls = [asyncio.create_task(pool.run(block)) for _ in range(2)]
    while not started.is_set():
        await asyncio.sleep(0.001)
    for call in calls:
        call.cancel()
    waiting = asyncio.create_task(pool.run(lambda: "next"))
    release.set()
    assert await waiting == "next"


async def test_a_call_that_is_cancelled_before_it_begins_is_not_made(pool: WorkerPool) -> None:
    release = threading.Event()
    blocking = [asyncio.create_task(pool.run(lambda: release.wait(30))) for _ in range(2)]
    made: list[str] = []
    waiting = asyncio.create_task(pool.run(lambda: made.append("cancelled")))
    while not pool.waiting:
        await asyncio.sleep(0.001)
    waiting.cancel()
    await asyncio.sleep(0)
    release.set()
    await pool.run(lambda: made.append("last"))
    await asyncio.gather(*blocking)
    assert made == ["last"]
    assert not pool.waiting
