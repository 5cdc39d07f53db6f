"""Delivers the events of one subscription: bounded concurrency, retries, dead letters."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from localazure.eventgrid import dead_letters
from localazure.eventgrid.configuration import Subscription
from localazure.eventgrid.retry import Outcome, RetrySchedule, Verdict
from localazure.eventgrid.schemas import Event, Schema, convert
from localazure.eventgrid.store import Delivery, Store
from localazure.processes.background import cancel
from localazure.processes.pauses import wait_at_most

logger = logging.getLogger(__name__)

# Most concurrent requests to one endpoint.
MAX_CONCURRENT_DELIVERIES = 16
# Most deliveries that are read ahead from the store.
READ_AHEAD = 500
# First and longest pause between two attempts to connect to a local port that is closed.
CONNECT_RETRY_SECONDS = 0.1
MAX_CONNECT_RETRY_SECONDS = 2.0
DEAD_LETTER_RETRY_SECONDS = 5.0
# The pause after an unexpected error, such as a full disk.
ERROR_RETRY_SECONDS = 1.0

WriteDeadLetter = Callable[[Delivery], Awaitable[None]]


class Endpoint(Protocol):
    """The destination of a subscription."""

    async def deliver(self, events: list[Event], attempts: int) -> Outcome:
        """Send events in the subscription's schema, after `attempts` earlier attempts."""
        ...


class DeliveryWorker:
    """Delivers the events of one subscription until it is cancelled.

    Args:
        write_dead_letter: writes into the container of the subscription.
        schema: the schema of delivered events.
        clock: returns Unix time.
    """

    def __init__(
        self,
        subscription: Subscription,
        store: Store,
        endpoint: Endpoint,
        write_dead_letter: WriteDeadLetter,
        *,
        schema: Schema,
        schedule: RetrySchedule,
        clock: Callable[[], float] = time.time,
        source: random.Random | None = None,
    ) -> None:
        self.subscription = subscription
        self._store = store
        self._endpoint = endpoint
        self._write_dead_letter = write_dead_letter
        self._schema = schema
        self._schedule = schedule
        self._clock = clock
        self._random = source or random.Random()  # noqa: S311 - jitter
        self._waiting: deque[Delivery] = deque()
        self._in_flight: dict[asyncio.Task[None], Sequence[int]] = {}
        self._wake = asyncio.Event()
        self._connect_retry_seconds = 0.0

    def wake(self) -> None:
        """Make the worker check for due deliveries."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver due events and wait for more."""
        try:
            while True:
                self._wake.clear()
                now_seconds = self._clock()
                self._start_deliveries(now_seconds)
                await self._pause(now_seconds)
        finally:
            await cancel(*self._in_flight)

    def _has_room(self) -> bool:
        # While the port is closed, one delivery at a time tries to connect.
        most = 1 if self._connect_retry_seconds else MAX_CONCURRENT_DELIVERIES
        return len(self._in_flight) < most

    def _start_deliveries(self, now_seconds: float) -> None:
        while self._has_room():
            if not self._waiting:
                busy = {event_id for ids in self._in_flight.values() for event_id in ids}
                self._waiting.extend(
                    self._store.due(self.subscription.name, now_seconds, READ_AHEAD, busy)
                )
            if not self._waiting:
                return
            batch = self._next_batch()
            task = asyncio.create_task(self._deliver(batch))
            self._in_flight[task] = [delivery.event_id for delivery in batch]
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._in_flight[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("delivery for %s failed", self.subscription.name, exc_info=error)
            asyncio.get_running_loop().call_later(ERROR_RETRY_SECONDS, self._wake.set)
        else:
            self._wake.set()

    def _next_batch(self) -> list[Delivery]:
        """Take the deliveries of the next request. A dead letter is written alone."""
        first = self._waiting.popleft()
        batching = self.subscription.batching(first.attempts)
        batch, size_bytes = [first], first.size_bytes
        while (
            len(batch) < batching.max_events_per_batch
            and first.dead_letter_reason is None
            and self._waiting
            and self._waiting[0].dead_letter_reason is None
            # A request states one number of attempts for all its events.
            and self._waiting[0].attempts == first.attempts
            and size_bytes + self._waiting[0].size_bytes
            <= 1024 * batching.preferred_batch_size_in_kilobytes
        ):
            batch.append(self._waiting.popleft())
            size_bytes += batch[-1].size_bytes
        return batch

    async def _pause(self, now_seconds: float) -> None:
        """Wait for `wake`, or until the next delivery after `now_seconds` is due."""
        timeout_seconds = None
        if self._has_room():
            due_seconds = self._store.next_due_seconds(self.subscription.name, now_seconds)
            timeout_seconds = None if due_seconds is None else max(0.0, due_seconds - self._clock())
        await wait_at_most(self._wake, timeout_seconds)

    async def _deliver(self, batch: Sequence[Delivery]) -> None:
        now_seconds = self._clock()
        policy = self.subscription.properties.retry_policy
        live: list[Delivery] = []
        for delivery in batch:
            if delivery.dead_letter_reason is not None:
                await self._dead_letter(delivery)
            elif now_seconds >= delivery.published_seconds + policy.time_to_live_seconds:
                await self._postpone_one(delivery, 0.0, dead_letters.EXPIRED)
            else:
                live.append(delivery)
        if live:
            await self._attempt(live, now_seconds)

    async def _attempt(self, batch: list[Delivery], now_seconds: float) -> None:
        events = [
            convert(
                delivery.event,
                delivery.schema,
                self._schema,
                published=datetime.fromtimestamp(delivery.published_seconds, UTC),
            )
            for delivery in batch
        ]
        pause_seconds = self._connect_retry_seconds
        outcome = await self._endpoint.deliver(events, batch[0].attempts)
        if outcome.verdict is Verdict.NOT_LISTENING:
            await self._wait_until_listening(batch, pause_seconds)
            return
        self._connect_retry_seconds = 0.0
        if outcome.verdict is Verdict.DELIVERED:
            ids = [delivery.event_id for delivery in batch]
            await self._store.finish(self.subscription.name, ids, "delivered")
            return
        await self._postpone(batch, outcome, now_seconds)

    async def _wait_until_listening(self, batch: list[Delivery], pause_seconds: float) -> None:
        """Delay deliveries without counting an attempt.

        Parts start in any order and restart after a crash. Event Grid's schedule is for outages of
        remote endpoints and would delay local deliveries by seconds. The time to live is not
        extended.
        """
        if not self._connect_retry_seconds:
            logger.info("%s: the endpoint does not listen yet", self.subscription.name)
        # If concurrent attempts fail, only the first failure extends the pause.
        if self._connect_retry_seconds == pause_seconds:
            self._connect_retry_seconds = min(
                max(2 * pause_seconds, CONNECT_RETRY_SECONDS), MAX_CONNECT_RETRY_SECONDS
            )
        await asyncio.sleep(self._connect_retry_seconds)
        self._waiting.extendleft(reversed(batch))

    async def _postpone(self, batch: list[Delivery], outcome: Outcome, now_seconds: float) -> None:
        policy = self.subscription.properties.retry_policy
        later: list[tuple[float, Delivery]] = []
        for delivery in batch:
            attempts = delivery.attempts + 1
            reason = None
            if outcome.verdict is Verdict.FINAL:
                reason = dead_letters.UNDELIVERABLE
            elif attempts >= policy.max_delivery_attempts:
                reason = dead_letters.MAX_ATTEMPTS
            due_seconds = self._clock()
            if reason is None:
                due_seconds += self._schedule.delay_seconds(attempts, outcome, self._random)
                due_seconds = min(
                    due_seconds, delivery.published_seconds + policy.time_to_live_seconds
                )
            changed = replace(
                delivery,
                attempts=attempts,
                last_outcome=outcome.text,
                last_attempt_seconds=now_seconds,
                dead_letter_reason=reason,
            )
            later.append((due_seconds, changed))
        await self._store.postpone(self.subscription.name, later, failed=len(batch))

    async def _postpone_one(
        self, delivery: Delivery, pause_seconds: float, reason: str | None
    ) -> None:
        """Dead-letter a delivery after a pause."""
        later = (self._clock() + pause_seconds, replace(delivery, dead_letter_reason=reason))
        await self._store.postpone(self.subscription.name, [later], failed=0)

    async def _dead_letter(self, delivery: Delivery) -> None:
        name = self.subscription.name
        event_id, reason = delivery.event["id"], delivery.dead_letter_reason
        if self.subscription.properties.dead_letters is None:
            logger.warning(
                "%s: event %s dropped (%s, %s): no deadLetterDestination",
                name,
                event_id,
                reason,
                delivery.last_outcome,
            )
            await self._store.finish(name, [delivery.event_id], "dropped")
            return
        try:
            await self._write_dead_letter(delivery)
        except dead_letters.NotWritten as error:
            logger.warning("%s: event %s cannot be dead-lettered yet: %s", name, event_id, error)
            await self._postpone_one(delivery, DEAD_LETTER_RETRY_SECONDS, reason)
            return
        logger.warning("%s: event %s dead-lettered (%s)", name, event_id, reason)
        await self._store.finish(name, [delivery.event_id], "deadLettered")
