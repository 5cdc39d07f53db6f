"""Timers with a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import azure.functions as func
import pytest
import pytest_asyncio
from azure.functions.meta import Datum

from localazure.functions.app.loader import LoadedFunction
from localazure.functions.app.signature import Binding, check
from localazure.functions.triggers.timer.one_host import MIGRATIONS
from localazure.functions.triggers.timer.trigger import TimerTrigger
from localazure.functions.worker.invocation import Invoker
from localazure.sqlite.database import Database

START = datetime(2026, 8, 8, 10, 2, tzinfo=UTC)
MakeTimer = Callable[[Callable[..., object], str], TimerTrigger]


class Clock:
    """A virtual clock that advances only by calls of `sleep`."""

    def __init__(self) -> None:
        self.time = START
        self.enough = asyncio.Event()

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        if self.enough.is_set():
            await asyncio.Event().wait()
        self.time += timedelta(seconds=seconds)
        await asyncio.sleep(0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "timers.db", MIGRATIONS)
    yield database
    database.close()


@pytest.fixture
def invoker() -> Invoker:
    async def send_output(*_: object) -> None: ...

    async def fetch_input(*_: object) -> Datum:
        raise AssertionError

    return Invoker(
        timeout=None,
        client_binding=str,
        fetch_input=fetch_input,
        send_output=send_output,
        threads=1,
    )


@pytest.fixture
def make_timer(clock: Clock, database: Database, invoker: Invoker) -> MakeTimer:
    """Creates a timer from a function and a schedule."""

    def make(call: Callable[..., object], schedule: str) -> TimerTrigger:
        binding = Binding("timer", "timerTrigger", settings={"schedule": schedule})
        function = LoadedFunction(
            name="tick",
            directory=Path(),
            call=call,
            is_async=True,
            trigger=binding,
            bindings=(binding,),
            signature=check(call, [binding]),
        )
        return TimerTrigger(function, invoker, database, now=clock.now, sleep=clock.sleep)

    return make


async def test_it_fires_at_each_occurrence(
    clock: Clock, database: Database, make_timer: MakeTimer
) -> None:
    fired: list[tuple[datetime, bool]] = []

    async def tick(timer: func.TimerRequest) -> None:
        fired.append((clock.time, timer.past_due))
        if len(fired) == 2:
            raise ValueError("the schedule goes on")
        if len(fired) == 4:
            clock.enough.set()

    timer = make_timer(tick, "0 */5 * * * *")
    await timer.start()
    async with asyncio.timeout(30):
        await clock.enough.wait()
    await timer.stop()
    await timer.finish()
    assert fired == [(START + timedelta(minutes=m), False) for m in (3, 8, 13, 18)]
    (row,) = database.read("SELECT * FROM timers")
    assert row["next"] == (START + timedelta(minutes=23)).isoformat()


async def test_a_run_that_is_cut_off_is_past_due_at_the_next_start(
    clock: Clock, invoker: Invoker, make_timer: MakeTimer
) -> None:
    began = asyncio.Event()
    past_due: list[bool] = []

    async def hang(timer: func.TimerRequest) -> None:
        past_due.append(timer.past_due)
        began.set()
        await asyncio.Event().wait()

    for _ in range(2):
        began.clear()
        timer = make_timer(hang, "0 0 11 * * *")
        await timer.start()
        async with asyncio.timeout(30):
            await began.wait()
        clock.time += timedelta(seconds=1)
        await timer.stop()
        assert not await invoker.drain(0.01)
        await timer.finish()
    assert past_due == [False, True]


async def test_a_run_that_ends_in_the_drain_is_remembered(
    database: Database, invoker: Invoker, make_timer: MakeTimer
) -> None:
    began, release = asyncio.Event(), asyncio.Event()

    async def wait(timer: func.TimerRequest) -> None:
        assert not timer.past_due
        began.set()
        await release.wait()

    timer = make_timer(wait, "0 0 11 * * *")
    await timer.start()
    async with asyncio.timeout(30):
        await began.wait()
    await timer.stop()
    release.set()
    assert await invoker.drain(30)
    await timer.finish()
    (row,) = database.read("SELECT * FROM timers")
    assert row["last"] == "2026-08-08T11:00:00+00:00"
    assert row["next"] == "2026-08-09T11:00:00+00:00"
