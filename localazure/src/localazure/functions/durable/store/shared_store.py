"""The task hub on SQLite, written by several hosts.

Each instance and entity belongs to a partition, each partition to the host that holds its lease.
Only that host runs it and keeps it in memory. The rules:

1. What the owner of a partition writes is fenced within its transaction: if the lease is another's
   by then, the transaction fails with `LeasesChanged`, and all later ones of its lane with it.
2. Messages and instances are numbered by the transaction that writes them. SQLite lets one process
   write at a time, so that numbers grow in the order of commits: an owner finds what is new behind
   the last number that it saw (`arrived`), whoever sent it, itself included.
3. Reads for the engine show the host's own partitions; activities belong to no partition. A host
   claims them, and they are invisible to the others for the time of a lease.
4. What clients send, and the ends of activities, are in no lane: they do not build on what this
   host has in memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import Execution
from localazure.functions.durable.engine.partitions import partition_of
from localazure.functions.durable.store import leases, transactions
from localazure.functions.durable.store.leases import Held, LeasesChanged
from localazure.functions.durable.store.records import (
    UNNUMBERED,
    Activity,
    Delivery,
    EntityCommit,
    EpisodeCommit,
    Message,
    Rewrite,
    Timer,
    microseconds,
)
from localazure.functions.durable.store.store import Store
from localazure.sqlite.database import Lane, Transaction

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """How a host shares a task hub.

    Attributes:
        host: its id, unique to the process.
        lease: how long it keeps its partitions and activities when it does not answer.
    """

    host: str
    lease: timedelta


@dataclass(frozen=True)
class Arrivals:
    """New instances and messages for the partitions of a host."""

    instance_ids: Sequence[str]
    messages: Sequence[Message]


class SharedStore(Store):
    """The task hub in one SQLite file, as one of several hosts has it.

    Args:
        path: the file.
        sharing: how this host shares it.
        partition_count: of the task hub, the same for all hosts.
        clock: the current time, UTC.

    Raises:
        StartError: a host with another number of partitions runs.
    """

    is_shared = True

    def __init__(
        self, path: Path, sharing: Sharing, partition_count: int, clock: Callable[[], datetime]
    ) -> None:
        super().__init__(path)
        self.lease = sharing.lease
        self._host = sharing.host
        self._partition_count = partition_count
        self._clock = clock
        self._last_message = 0
        self._last_instance = 0
        self.held: Held = {}
        """The host's partitions, as its memory has them."""
        self.on_sent: Callable[[], None] = lambda: None
        """Called when something was written that may be for this host."""

    # --- leases --------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Make the leases, where they are missing; see `leases.prepare`."""
        count, now_us = self._partition_count, self._now_us()
        await self._write(lambda db: leases.prepare(db, count, now_us))

    async def renew_leases(self) -> None:
        """Renew the host's leases, and take those that it should have."""
        host, now_us, until_us = self._host, self._now_us(), self._until_us()
        self._take(await self._write(lambda db: leases.renew(db, host, now_us, until_us)))

    async def release_leases(self) -> None:
        """Give the host's leases back: another host need not wait for their end."""
        await self._write(lambda db: leases.release(db, self._host))

    def check_leases(self) -> None:
        """See whether they are still the host's own."""
        rows = self._database.read(
            "SELECT partition, epoch FROM leases WHERE owner = ?", (self._host,)
        )
        self._take({partition: epoch for partition, epoch in rows if partition in self.held})

    def _take(self, held: Held) -> None:
        """Have the engine begin anew with other partitions, behind all that it has submitted."""
        if held == self.held:
            return

        def begin_anew(_: object) -> NoReturn:
            raise LeasesChanged(held)

        self._submit(begin_anew)

    # --- writing -------------------------------------------------------------------------------

    def message(self, target: str, event: Event, execution_id: str | None = None) -> Message:
        """A message that the transaction numbers."""
        return Message(target=target, event=event, execution_id=execution_id, sequence=UNNUMBERED)

    async def create(self, execution: Execution) -> None:
        """See `transactions.create`."""

        def created(db: sqlite3.Connection) -> None:
            transactions.create(db, execution)
            leases.mark_arrivals(db, [execution.instance_id])

        await self._send(created)

    def commit(self, turn: EpisodeCommit, *, is_patient: bool = False) -> asyncio.Future[Delivery]:
        """Commit an episode; what it sends comes by `arrived`."""

        def committed(db: sqlite3.Connection) -> Delivery:
            leases.mark_arrivals(db, transactions.commit(db, turn).started)
            return Delivery()

        fenced = self._fenced(turn.execution.instance_id, committed)
        future = self._submit(fenced, is_patient=is_patient)
        if turn.activities or turn.messages or turn.children:
            future.add_done_callback(lambda _: self.on_sent())
        return future

    async def commit_entity(self, turn: EntityCommit) -> list[Message]:
        """Commit a batch of operations; the answers come by `arrived`."""
        await self._submit(
            self._fenced(turn.entity_id, lambda db: transactions.commit_entity(db, turn))
        )
        self.on_sent()
        return []

    async def rewrite(self, rewrites: Sequence[Rewrite], at: datetime) -> None:
        """Take failed instances back to Running; their owners read them anew."""
        partitions = sorted({self._partition_of(one.instance_id) for one in rewrites})

        def rewritten(db: sqlite3.Connection) -> None:
            transactions.rewrite(db, rewrites, at)
            leases.advance(db, partitions)

        await self._send(rewritten)

    # --- activities ----------------------------------------------------------------------------

    def has_claimable(self) -> bool:
        """Whether there is an activity that no host runs."""
        rows = self._database.read(
            "SELECT 1 FROM activities WHERE not_before_us <= ? LIMIT 1", (self._now_us(),)
        )
        return bool(rows)

    async def claim_activities(self, most: int) -> list[Activity]:
        """Take up to so many activities that no host runs, for the time of a lease."""
        now_us, until_us = self._now_us(), self._until_us()
        return await self._write(lambda db: leases.claim_activities(db, most, now_us, until_us))

    async def renew_claims(self, activities: Sequence[Activity]) -> None:
        """Keep activities that still run."""
        until_us = self._until_us()
        await self._write(lambda db: leases.renew_claims(db, activities, until_us))

    # --- reading -------------------------------------------------------------------------------

    def arrived(self) -> Arrivals:
        """Everything new since the last call; after an error, the next call returns it again."""
        rows = self._database.read(
            "SELECT arrival, instance_id FROM instances WHERE started = 0 AND arrival > ?"
            " ORDER BY arrival",
            (self._last_instance,),
        )
        messages = self._arrived_messages()
        if rows:
            self._last_instance = rows[-1]["arrival"]
        return Arrivals(
            [row["instance_id"] for row in rows if self.owns(row["instance_id"])], messages
        )

    def _arrived_messages(self) -> list[Message]:
        messages = self._messages_after(self._last_message)
        if messages:
            self._last_message = messages[-1].sequence or 0
        return [message for message in messages if self.owns(message.target)]

    def to_start(self) -> list[str]:
        """Live instances of the host whose current execution has no episode yet."""
        return [one for one in super().to_start() if self.owns(one)]

    def inbox(self) -> list[Message]:
        """All messages that wait for instances and entities of the host."""
        self._last_message = 0
        return self._arrived_messages()

    def activities(self) -> list[Activity]:
        """None: no host has activities of its own."""
        return []

    def timers(self) -> list[Timer]:
        """All timers of the host's instances whose firing no episode has consumed."""
        return [timer for timer in super().timers() if self.owns(timer.instance_id)]

    def owns(self, target: str) -> bool:
        """Whether an instance or entity is this host's."""
        return self._partition_of(target) in self.held

    # --- the rest ------------------------------------------------------------------------------

    def _partition_of(self, target: str) -> int:
        return partition_of(target, self._partition_count)

    def _fenced(self, target: str, transaction: Transaction[T]) -> Transaction[T]:
        host, partition, held = self._host, self._partition_of(target), self.held

        def fenced(db: sqlite3.Connection) -> T:
            leases.fence(db, host, partition, held)
            return transaction(db)

        return fenced

    def _on_done(self, lane: Lane, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, LeasesChanged) and lane is self._lane:
            self.held = error.held  # before the engine reads anew what is its own
        super()._on_done(lane, future)

    def _write(self, transaction: Transaction[T]) -> asyncio.Future[T]:
        return self._database.submit(transaction)

    def _send(self, transaction: Transaction[T]) -> asyncio.Future[T]:
        future = self._write(transaction)
        future.add_done_callback(lambda _: self.on_sent())
        return future

    def _now_us(self) -> int:
        return microseconds(self._clock())

    def _until_us(self) -> int:
        return microseconds(self._clock() + self.lease)
