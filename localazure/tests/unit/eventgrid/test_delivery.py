"""The delivery worker with a real store and an endpoint with scripted answers.

The clock is virtual: days of the retry schedule take no time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from localazure.eventgrid import delivery as module
from localazure.eventgrid.configuration import Subscription
from localazure.eventgrid.dead_letters import NotWritten
from localazure.eventgrid.delivery import MAX_CONCURRENT_DELIVERIES, DeliveryWorker
from localazure.eventgrid.retry import (
    JITTER,
    SCHEDULE_SECONDS,
    Outcome,
    RetrySchedule,
    Verdict,
    judge,
)
from localazure.eventgrid.schemas import Event, Schema
from localazure.eventgrid.store import Delivery, Store

START_SECONDS = 1_800_000_000.0
NOT_LISTENING = Outcome(Verdict.NOT_LISTENING, "SocketError")


WEBHOOK = {"endpointUrl": "http://127.0.0.1:1/"}
TO_DEAD = {"endpointType": "StorageBlob", "properties": {"blobContainerName": "dead"}}


class ScriptedEndpoint:
    """Returns the given outcomes, then that of status 200."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.answers: list[Outcome] = []
        self.default = judge(200, webhook=True)
        self.attempts: list[tuple[float, int, list[Event]]] = []
        self.under_way = 0
        self.most_under_way = 0

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        self.attempts.append((self._clock(), attempts, events))
        return self.answers.pop(0) if self.answers else self.default


class Bench:
    """A worker, its store, its endpoint, its clock."""

    def __init__(
        self,
        folder: Path,
        *,
        webhook: dict[str, Any] | None = None,
        queue: str | None = None,
        **properties: Any,
    ) -> None:
        self.now_seconds = START_SECONDS
        self.clock = lambda: self.now_seconds
        self.store = Store(folder / "events.db")
        self.endpoint = ScriptedEndpoint(self.clock)
        self.letters: list[Delivery] = []
        self.letter_errors = 0
        destination: dict[str, Any] = {
            "endpointType": "WebHook",
            "properties": webhook or WEBHOOK,
        }
        if queue is not None:
            destination = {"endpointType": "ServiceBusQueue", "properties": {"resourceId": queue}}
        self.worker = DeliveryWorker(
            Subscription.model_validate(
                {
                    "name": "sub",
                    "topic": "t",
                    "properties": {"destination": destination, **properties},
                }
            ),
            self.store,
            self.endpoint,
            self._write_dead_letter,
            schema=Schema.EVENT_GRID,
            schedule=RetrySchedule(),
            clock=self.clock,
            source=random.Random(1),
        )
        self._closed = False
        self._task = asyncio.create_task(self.worker.run())

    async def _write_dead_letter(self, delivery: Delivery) -> None:
        if self.letter_errors:
            self.letter_errors -= 1
            raise NotWritten("storage is down")
        self.letters.append(delivery)

    async def publish(self, count: int = 1) -> None:
        events = [({"id": str(n), "subject": "/s"}, ["sub"]) for n in range(count)]
        await self.store.accept(events, Schema.EVENT_GRID, self.clock())
        self.worker.wake()

    async def run_until_done(self) -> dict[str, int]:
        """Advance the clock from one due delivery to the next until none waits."""
        async with asyncio.timeout(20):
            while (counts := self.store.counts("sub"))["waiting"]:
                due_seconds = self.store.next_due_seconds("sub", self.clock())
                nothing_due = not self.store.due("sub", self.clock(), 1, ())
                if nothing_due and due_seconds is not None:
                    self.now_seconds = due_seconds
                    self.worker.wake()
                await asyncio.sleep(0.001)
        return counts

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.store.close()


@pytest.fixture
async def make_bench(tmp_path: Path) -> AsyncIterator[Any]:
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(tmp_path, **settings))
        return made[-1]

    yield make
    for bench in made:
        await bench.close()


async def test_delivers_each_event_once_with_bounded_concurrency(make_bench: Any) -> None:
    bench = make_bench()
    await bench.publish(500)
    counts = await bench.run_until_done()
    assert (counts["matched"], counts["delivered"], counts["failed"]) == (500, 500, 0)
    assert sorted(int(events[0]["id"]) for _, _, events in bench.endpoint.attempts) == [*range(500)]
    assert 1 < bench.endpoint.most_under_way <= MAX_CONCURRENT_DELIVERIES


async def test_schedule_is_kept_until_the_attempts_are_used_up(make_bench: Any) -> None:
    bench = make_bench(dead_letter_destination=TO_DEAD, retry_policy={"maxDeliveryAttempts": 6})
    bench.endpoint.default = judge(500, webhook=True)
    await bench.publish()
    counts = await bench.run_until_done()
    times_seconds = [at_seconds for at_seconds, _, _ in bench.endpoint.attempts]
    assert [attempts for _, attempts, _ in bench.endpoint.attempts] == [0, 1, 2, 3, 4, 5]
    for step_seconds, earlier_seconds, later_seconds in zip(
        SCHEDULE_SECONDS, times_seconds, times_seconds[1:], strict=False
    ):
        assert step_seconds <= later_seconds - earlier_seconds <= step_seconds * (1 + JITTER) + 1e-6
    (letter,) = bench.letters
    assert letter.dead_letter_reason == "MaxDeliveryAttemptsExceeded"
    assert letter.attempts == 6
    assert (counts["failed"], counts["deadLettered"], counts["delivered"]) == (6, 1, 0)


async def test_time_to_live_ends_before_the_attempts_do(make_bench: Any) -> None:
    bench = make_bench(
        dead_letter_destination=TO_DEAD, retry_policy={"eventTimeToLiveInMinutes": 1}
    )
    bench.endpoint.default = judge(500, webhook=True)
    await bench.publish()
    await bench.run_until_done()
    (letter,) = bench.letters
    assert letter.dead_letter_reason == "TimeToLiveExceeded"
    assert letter.attempts == 3  # at 0, 10 and 40 s
    assert letter.last_outcome == "GenericError"
    assert bench.clock() == START_SECONDS + 60


async def test_final_answer_is_not_repeated_and_dropped_without_a_container(
    make_bench: Any,
) -> None:
    bench = make_bench()
    bench.endpoint.answers = [judge(400, webhook=True)]
    await bench.publish()
    counts = await bench.run_until_done()
    assert len(bench.endpoint.attempts) == 1
    assert (counts["dropped"], counts["deadLettered"]) == (1, 0)


async def test_absent_listener_costs_no_attempt(
    make_bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECT_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(module, "MAX_CONNECT_RETRY_SECONDS", 0.001)
    bench = make_bench()
    bench.endpoint.answers = [NOT_LISTENING] * 40
    await bench.publish(50)
    counts = await bench.run_until_done()
    assert (counts["delivered"], counts["failed"]) == (50, 0)
    assert {attempts for _, attempts, _ in bench.endpoint.attempts} == {0}
    assert bench.clock() == START_SECONDS


@pytest.mark.parametrize(("number", "most"), [(3, 3), (50, 35)])
async def test_batches_have_a_bounded_number_and_size(
    make_bench: Any, number: int, most: int
) -> None:
    limits = {"maxEventsPerBatch": number, "preferredBatchSizeInKilobytes": 1}
    bench = make_bench(webhook=WEBHOOK | limits)
    await bench.publish(200)
    await bench.run_until_done()
    batches = [events for _, _, events in bench.endpoint.attempts]
    assert sum(len(events) for events in batches) == 200
    assert all(sum(len(json.dumps(event)) for event in events) <= 1024 for events in batches)
    assert most - 3 < max(len(events) for events in batches) <= most


async def test_messages_go_to_service_bus_together_until_one_is_rejected(make_bench: Any) -> None:
    bench = make_bench(queue="/queues/inbox")
    await bench.publish(250)
    await bench.run_until_done()
    batches = [len(events) for _, _, events in bench.endpoint.attempts]
    assert (sum(batches), max(batches)) == (250, 100)

    bench.endpoint.attempts.clear()
    bench.endpoint.answers = [Outcome(Verdict.RETRY, "Busy")]
    await bench.publish(3)
    await bench.run_until_done()
    sizes = [(attempts, len(events)) for _, attempts, events in bench.endpoint.attempts]
    assert sizes == [(0, 3), (1, 1), (1, 1), (1, 1)]


async def test_undelivered_events_go_on_after_a_restart(make_bench: Any) -> None:
    first = make_bench()
    first.endpoint.default = judge(500, webhook=True)
    await first.publish(5)
    async with asyncio.timeout(10):
        while first.store.counts("sub")["failed"] < 5:
            await asyncio.sleep(0.001)
    await first.close()
    second = make_bench()
    counts = await second.run_until_done()
    assert counts["delivered"] == 5
    assert {attempts for _, attempts, _ in second.endpoint.attempts} == {1}
    assert (
        min(at_seconds for at_seconds, _, _ in second.endpoint.attempts)
        >= START_SECONDS + SCHEDULE_SECONDS[0]
    )
