from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from collections.abc import Callable

import pytest

from handlers.platform.bulkheads import BackgroundThread, Bulkhead, Unavailable

NAME = "the service"
SOON = 0.05
DEADLINE_SECONDS = 30.0


class Service:
    """Answers when it is `open`."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked: list[str] = []

    def answer(self, name: str) -> str:
        self.asked.append(name)
        assert self.open.wait(DEADLINE_SECONDS)
        return name.upper()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


def is_idle() -> bool:
    """Whether no call is under way."""
    return all(thread.name != NAME for thread in threading.enumerate())


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def bulkhead() -> Bulkhead:
    return Bulkhead(NAME, threads=2, limit_seconds=DEADLINE_SECONDS)


async def test_more_calls_than_threads_wait_for_their_turn(
    bulkhead: Bulkhead, service: Service
) -> None:
    service.open.set()
    names = list("abcdefgh")
    found = await asyncio.gather(*(bulkhead.ask(service.answer, name) for name in names))
    assert found == list("ABCDEFGH")
    assert bulkhead.call_within(DEADLINE_SECONDS, service.answer, "i") == "I"
    await until(is_idle)


async def test_an_error_is_the_callers_and_the_context_is_the_threads(bulkhead: Bulkhead) -> None:
    trace = contextvars.ContextVar("trace", default="none")
    trace.set("of the caller")
    assert await bulkhead.ask(trace.get) == "of the caller"
    assert bulkhead.call_within(DEADLINE_SECONDS, trace.get) == "of the caller"
    with pytest.raises(ZeroDivisionError):
        await bulkhead.ask(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bulkhead.call_within(DEADLINE_SECONDS, lambda: 1 // 0)


async def test_no_result_is_left_that_nobody_has_read(bulkhead: Bulkhead) -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    fails = threading.Event()

    def fail() -> None:
        fails.wait(DEADLINE_SECONDS)
        raise LookupError

    with pytest.raises(Unavailable):
        await bulkhead.ask_within(SOON, fail)
    fails.set()
    with pytest.raises(LookupError):
        await bulkhead.ask(fail)
    await until(is_idle)
    await asyncio.sleep(0)
    gc.collect()
    assert reports == []


async def test_a_service_that_hangs_is_told_at_once_until_it_answers_again(
    bulkhead: Bulkhead, service: Service
) -> None:
    with pytest.raises(Unavailable, match=r"the service did not answer within 0\.05 s"):
        await bulkhead.ask_within(SOON, service.answer, "a")
    with pytest.raises(Unavailable, match=r"did not answer within 0\.05 s"):
        bulkhead.call_within(SOON, service.answer, "b")
    # Both threads are held.
    with pytest.raises(Unavailable, match="the service does not answer: 2 calls"):
        await bulkhead.ask(service.answer, "c")
    with pytest.raises(Unavailable, match="the service does not answer: 2 calls"):
        bulkhead.call_within(DEADLINE_SECONDS, service.answer, "c")
    service.open.set()
    await until(is_idle)
    assert await bulkhead.ask(service.answer, "d") == "D"
    assert service.asked == ["a", "b", "d"]


async def test_a_call_whose_caller_has_gone_does_not_begin(
    bulkhead: Bulkhead, service: Service
) -> None:
    busy = [asyncio.create_task(bulkhead.ask(service.answer, name)) for name in "ab"]
    await until(lambda: len(service.asked) == 2)
    waiting = asyncio.create_task(bulkhead.ask(service.answer, "c"))
    with pytest.raises(Unavailable):
        await bulkhead.ask_within(SOON, service.answer, "d")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    service.open.set()
    assert await asyncio.gather(*busy) == ["A", "B"]
    await until(is_idle)
    assert sorted(service.asked) == ["a", "b"]


async def test_a_caller_that_is_cancelled_leaves_a_thread_that_counts(
    bulkhead: Bulkhead, service: Service
) -> None:
    for name in "ab":
        call = asyncio.create_task(bulkhead.ask(service.answer, name))
        await until(lambda name=name: name in service.asked)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    with pytest.raises(Unavailable, match="2 calls"):
        await bulkhead.ask(service.answer, "c")
    service.open.set()
    await until(is_idle)


def test_jobs_run_in_order_and_no_caller_waits() -> None:
    background, gate, done = BackgroundThread(), threading.Event(), list[int]()

    def hang() -> None:
        gate.wait()
        done.append(0)

    assert background.submit(hang)
    for number in (1, 2):
        assert background.submit(lambda number=number: done.append(number))
    assert done == []
    gate.set()
    background.wait_until_idle()
    assert done == [0, 1, 2]


def test_a_job_that_fails_is_logged_without_its_text_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, done = BackgroundThread(), list[str]()

    def fail() -> None:
        raise ConnectionError("key=secret")

    background.submit(fail)
    background.submit(lambda: done.append("next"))
    background.wait_until_idle()
    assert done == ["next"]
    assert "ConnectionError" in caplog.text
    assert "secret" not in caplog.text


def test_what_waits_is_bounded() -> None:
    background, gate = BackgroundThread(limit_jobs=2), threading.Event()
    begun = threading.Event()

    def hang() -> None:
        begun.set()
        gate.wait()

    assert background.submit(hang)
    assert begun.wait(10)
    assert [background.submit(lambda: None) for _ in range(3)] == [True, True, False]
    gate.set()
    background.wait_until_idle()
    assert background.submit(lambda: None)
