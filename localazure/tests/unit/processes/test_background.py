from __future__ import annotations

import asyncio
import logging
import sqlite3

import pytest

from localazure.processes.background import (
    FAILURES_ALLOWED,
    LONGEST_PAUSE_SECONDS,
    cancel,
    doing,
    keep_doing,
)


class Trial:
    """Work that fails as often as it is told to, under a clock that advances by pauses."""

    def __init__(self, failures: int, *, lasting_seconds: float = 0.0) -> None:
        self.failures = failures
        self.lasting_seconds = lasting_seconds
        self.now = 0.0
        self.pauses: list[float] = []
        self.ended = 0

    async def work(self) -> str:
        self.now += self.lasting_seconds
        if self.failures:
            self.failures -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def end(self) -> None:
        self.ended += 1

    async def run(self) -> str:
        return await keep_doing(
            "the trial",
            self.work,
            sleep=self.sleep,
            clock=lambda: self.now,
            end_process=self.end,
        )


async def test_work_that_fails_is_done_again_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    trial = Trial(failures=3)
    assert await trial.run() == "done"
    assert trial.pauses == [0.1, 0.2, 0.4]
    assert not trial.ended
    first, *later = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "the trial failed" in first.message
    assert "disk I/O error" in first.message
    assert first.exc_info is not None
    assert len(later) == 2
    assert all(record.exc_info is None for record in later)


async def test_a_process_that_cannot_do_its_work_ends() -> None:
    trial = Trial(failures=1_000)
    with pytest.raises(sqlite3.OperationalError):
        await trial.run()
    assert trial.ended == 1
    assert len(trial.pauses) == FAILURES_ALLOWED
    assert max(trial.pauses) == LONGEST_PAUSE_SECONDS


async def test_tasks_have_ended_once_they_are_cancelled() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as one that closes a connection
            ended.append(name)
            raise sqlite3.OperationalError(name)

    tasks = [asyncio.create_task(work(name)) for name in "ab"]
    await asyncio.sleep(0)
    await cancel(tasks[0], None, tasks[1])
    assert ended == ["a", "b"]


async def test_what_a_context_does_is_done_again_and_ends_with_it() -> None:
    trial, is_done = Trial(failures=1), asyncio.Event()

    async def work() -> None:
        await trial.work()
        is_done.set()
        await asyncio.Event().wait()

    async with doing("the trial", work):
        await is_done.wait()
    assert asyncio.all_tasks() == {asyncio.current_task()}
