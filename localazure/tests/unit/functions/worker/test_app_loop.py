from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Generator

import pytest

from localazure.functions.worker.app_loop import AppLoop

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller")


@pytest.fixture
def loop() -> Generator[AppLoop]:
    loop = AppLoop()
    yield loop
    loop.close()


async def test_a_coroutine_that_blocks_does_not_block_the_host(loop: AppLoop) -> None:
    asked, answered = threading.Event(), threading.Event()

    async def block() -> str:
        asked.set()
        assert answered.wait(30)  # as a synchronous client of the host
        return caller.get()

    caller.set("a test")
    blocked = asyncio.create_task(loop.run(block()))
    while not asked.is_set():
        await asyncio.sleep(0)
    answered.set()
    assert await blocked == "a test"


async def test_a_cancellation_reaches_the_coroutine(loop: AppLoop) -> None:
    began, ended = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(loop.run(wait()))
    while not began.is_set():
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.wait(30)
