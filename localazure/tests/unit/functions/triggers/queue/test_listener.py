"""The processing steps of a message, recorded in the journal of an in-memory queue."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from azure.core.exceptions import HttpResponseError
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.configuration.host_json import QueueOptions
from localazure.functions.triggers.queue import listener as queue_listener
from localazure.functions.triggers.queue.listener import (
    SHORTEST_SECONDS,
    PollingDelay,
    QueueListener,
    Work,
)
from localazure.storage_client.queue import ReceivedMessage

OPTIONS = QueueOptions(
    max_dequeue_count=3,
    visibility_timeout=timedelta(seconds=7),
    max_polling_interval=timedelta(seconds=0.1),
    message_encoding="none",
)


def message(dequeue_count: int = 1) -> ReceivedMessage:
    now = datetime.now(UTC)
    return ReceivedMessage(
        id="m",
        text="text",
        pop_receipt="r0",
        dequeue_count=dequeue_count,
        inserted_at=now,
        expires_at=now,
        next_visible_at=now,
    )


@dataclass
class MemoryQueue:
    name: str
    journal: list[tuple[Any, ...]]
    waiting: list[ReceivedMessage] = field(default_factory=list[ReceivedMessage])
    fault: Exception | None = None
    receipts: int = 0

    async def receive(self, count: int, _: int) -> list[ReceivedMessage]:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    async def put(self, text: str) -> None:
        self.journal.append(("put", self.name, text))
        if self.fault is not None:
            raise self.fault

    async def delete(self, _: str, pop_receipt: str) -> None:
        self.journal.append(("delete", pop_receipt))

    async def hide(self, _: str, pop_receipt: str, seconds: int) -> str:
        self.journal.append(("hide", pop_receipt, seconds))
        self.receipts += 1
        return f"r{self.receipts}"


@dataclass
class Bench:
    journal: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def __post_init__(self) -> None:
        self.queue = MemoryQueue("q", self.journal)
        self.poison = MemoryQueue("q-poison", self.journal)

    @contextlib.asynccontextmanager
    async def listening(
        self, handle: Callable[[Work], Awaitable[None]]
    ) -> AsyncGenerator[QueueListener]:
        queues = {queue.name: queue for queue in (self.queue, self.poison)}

        async def open_queue(name: str) -> Any:
            return cast("Any", queues[name])

        listener = QueueListener(
            "q",
            "q-poison",
            open_queue=open_queue,
            handle=handle,
            options=OPTIONS,
            chance=random.Random(1),
        )
        await listener.start()
        yield listener
        await listener.stop()
        await listener.finish()

    async def until(self, step: str) -> None:
        async with asyncio.timeout(30):
            while step not in [entry[0] for entry in self.journal]:
                await asyncio.sleep(0.01)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def succeed(_: Work) -> None: ...


async def fail(_: Work) -> None:
    raise ValueError("as told")


async def test_long_work_keeps_its_message_hidden(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_listener, "VISIBILITY_SECONDS", 0.02)
    bench.queue.waiting = [message()]

    async def work(_: Work) -> None:
        await bench.until("hide")
        monkeypatch.setattr(queue_listener, "VISIBILITY_SECONDS", 600)

    async with bench.listening(work):
        await bench.until("delete")
    *renewals, last = bench.journal
    assert renewals[0] == ("hide", "r0", 0.02)
    assert last == ("delete", f"r{len(renewals)}")  # the latest pop receipt


async def test_a_message_cut_off_at_the_end_is_visible_at_once(bench: Bench) -> None:
    bench.queue.waiting = [message()]
    began = asyncio.Event()

    async def work(_: Work) -> None:
        began.set()
        await asyncio.Event().wait()

    async with bench.listening(work):
        await began.wait()
    assert bench.journal == [("hide", "r0", 0)]


async def test_an_outage_is_logged_once_and_survived(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.queue.fault = HttpResponseError("ServerBusy")
    bench.queue.waiting = [message()]
    async with bench.listening(succeed):
        await bench.until("delete")
    assert caplog.text.count("cannot receive from the queue q") == 1
    assert "receiving from the queue q again" in caplog.text


@given(st.integers(), st.floats(SHORTEST_SECONDS, 60))
def test_delays_grow_to_the_longest_and_stay(seed: int, longest_seconds: float) -> None:
    delay = PollingDelay(longest_seconds, random.Random(seed))
    delays = [delay.missed() for _ in range(15)]
    assert delays == sorted(delays)
    assert delays[0] == SHORTEST_SECONDS
    assert delays[-1] == longest_seconds
    assert all(later <= 3 * sooner for sooner, later in itertools.pairwise(delays))


async def test_it_is_not_deleted_when_the_poison_queue_does_not_take_it(bench: Bench) -> None:
    bench.queue.waiting = [message(3)]
    bench.poison.fault = HttpResponseError("ServerBusy")
    async with bench.listening(fail):
        await bench.until("put")
    assert bench.journal == [("put", "q-poison", "text")]
