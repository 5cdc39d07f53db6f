"""The task hub on SQLite, shared by several hosts.

Each instance and entity belongs to a partition, and each partition to the host that holds its
lease. Only this host runs them and keeps them in memory. The rules:

1. Writes of a partition's owner are fenced within the transaction: if another host has the lease
   by then, the transaction fails with `LeasesChanged`, and so do all later ones of its lane.
2. Messages and instances are numbered by the transaction that writes them. SQLite allows one writer
   at a time, so the numbers increase in the order of commits. An owner finds new rows after the
   last number that it has read (`arrived`), those of other hosts and its own.
3. The engine reads only the host's own partitions. Activities belong to no partition: a host claims
   them, which hides them from the other hosts for a lease period.
4. Requests of clients and results of activities are in no lane, because they do not depend on the
   host's memory.
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
        host: the host's id, unique to the process.
        lease: how long its partitions and activities stay reserved without a renewal.
    """

    host: str
    lease: timedelta


@dataclass(frozen=True)
class Arrivals:
    """New instances and messages in the partitions of a host."""

    instance_ids: Sequence[str]
    messages: Sequence[Message]


class SharedStore(Store):
    """One host's access to a task hub in an SQLite file that several hosts share.

    Args:
        path: the file.
        sharing: how this host shares it.
        partition_count: the task hub's number of partitions, the same for all hosts.
        clock: the current time, UTC.

    Raises:
        StartError: a running host has another number of partitions.
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
        """The partitions for which the host's memory is valid."""
        self.on_sent: Callable[[], None] = lambda: None
        """Called after a write that may concern this host."""

    # --- leases --------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Create missing leases; see `leases.prepare`."""
        count, now_us = self._partition_count, self._now_us()
        await self._write(lambda db: leases.prepare(db, count, now_us))

    async def renew_leases(self) -> None:
        """Renew the host's leases, and take those that it should have."""
        host, now_us, until_us = self._host, self._now_us(), self._until_us()
        self._take(await self._write(lambda db: leases.renew(db, host, now_us, until_us)))

    async def release_leases(self) -> None:
        """Release the host's leases, so that other hosts need not wait until they expire."""
        await self._write(lambda db: leases.release(db, self._host))

    def check_leases(self) -> None:
        """Check whether the host still holds its leases."""
        rows = self._database.read(
            "SELECT partition, epoch FROM leases WHERE owner = ?", (self._host,)
        )
        self._take({partition: epoch for partition, epoch in rows if partition in self.held})

    def _take(self, held: Held) -> None:
        """Make the engine reload with other partitions, after all submitted transactions."""
        if held == self.held:
            return

        def begin_anew(_: object) -> NoReturn:
            raise LeasesChanged(held)

        self._submit(begin_anew)

    # --- writing -------------------------------------------------------------------------------

    def message(self, target: str, event: Event, execution_id: str | None = None) -> Message:
        """Return a message that will be numbered by the transaction that writes it."""
        return Message(target=target, event=event, execution_id=execution_id, sequence=UNNUMBERED)

    async def create(self, execution: Execution) -> None:
        """See `transactions.create`."""

        def created(db: sqlite3.Connection) -> None:
            transactions.create(db, execution)
            leases.mark_arrivals(db, [execution.instance_id])

        await self._send(created)

    def commit(self, turn: EpisodeCommit, *, is_patient: bool = False) -> asyncio.Future[Delivery]:
        """Commit an episode; `arrived` returns its messages and children."""

        def committed(db: sqlite3.Connection) -> Delivery:
            leases.mark_arrivals(db, transactions.commit(db, turn).started)
            return Delivery()

        fenced = self._fenced(turn.execution.instance_id, committed)
        future = self._submit(fenced, is_patient=is_patient)
        if turn.activities or turn.messages or turn.children:
            future.add_done_callback(lambda _: self.on_sent())
        return future

    async def commit_entity(self, turn: EntityCommit) -> Delivery:
        """Commit a batch of operations; `arrived` returns its responses."""
        await self._submit(
            self._fenced(turn.entity.entity_id, lambda db: transactions.commit_entity(db, turn))
        )
        self.on_sent()
        return Delivery()

    async def rewrite(self, rewrites: Sequence[Rewrite], at: datetime) -> None:
        """Set failed instances to Running; their owners reload them."""
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
        """Claim up to `most` activities that no host runs, for a lease period."""
        now_us, until_us = self._now_us(), self._until_us()
        return await self._write(lambda db: leases.claim_activities(db, most, now_us, until_us))

    async def renew_claims(self, activities: Sequence[Activity]) -> None:
        """Renew the claims of activities that still run."""
        until_us = self._until_us()
        await self._write(lambda db: leases.renew_claims(db, activities, until_us))

    # --- reading -------------------------------------------------------------------------------

    def arrived(self) -> Arrivals:
        """Return all new rows since the last call; after an error, the next call returns them."""
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
        """All waiting messages of the host's instances and entities."""
        self._last_message = 0
        return self._arrived_messages()

    def activities(self) -> list[Activity]:
        """Return none: hosts do not own activities but claim them."""
        return []

    def timers(self) -> list[Timer]:
        """All timers of the host's instances that were not consumed by an episode."""
        return [timer for timer in super().timers() if self.owns(timer.instance_id)]

    def owns(self, target: str) -> bool:
        """Whether this host owns an instance or entity."""
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
            self.held = error.held  # before the engine reloads its partitions
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
