from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from localazure.functions.worker.thread_pool import WorkerPool


@pytest.fixture
def pool() -> WorkerPool:
    return WorkerPool("test", 2)


async def test_results_and_errors_come_back(pool: WorkerPool) -> None:
    def fail() -> None:
        raise KeyError("x")

    assert await pool.run(lambda: 1) == 1
    with pytest.raises(KeyError):
        await pool.run(fail)
    assert await pool.run(lambda: 2) == 2
    pool.close()


async def test_it_grows_to_its_size_and_no_further(pool: WorkerPool) -> None:
    meeting = threading.Barrier(2)
    names: set[str] = set()

    def meet() -> None:
        meeting.wait(30)
        names.add(threading.current_thread().name)

    await asyncio.gather(*(pool.run(meet) for _ in range(6)))
    assert names == {"test-1", "test-2"}
    pool.close()


async def test_context_variables_come_along(pool: WorkerPool) -> None:
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    assert await pool.run(variable.get) == "mine"
    pool.close()


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
    pool.close()


async def test_a_stop_iteration_is_an_error_like_any_other(pool: WorkerPool) -> None:
    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run(stop)
    pool.close()


def test_its_threads_do_not_hold_up_the_end_of_the_process(pool: WorkerPool) -> None:
    async def main() -> None:
        release = threading.Event()
        call = asyncio.create_task(pool.run(release.wait))
        await asyncio.sleep(0)
        assert all(thread.daemon for thread in threading.enumerate() if "test-" in thread.name)
        release.set()
        await call

    asyncio.run(main())
    pool.close()
