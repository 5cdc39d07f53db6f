"""The task hub on SQLite: all changes of one episode are one transaction.

Only one process writes this store (`localazure.sqlite.database.Database`), so sequence numbers are
assigned in memory, in the order in which transactions are submitted. An awaited transaction is
durable. A submitted transaction never becomes durable without all transactions submitted before it
(`localazure.sqlite.database.Lane`). Reads return only durable rows.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from localazure.functions.durable.engine.history import Event
from localazure.functions.durable.engine.instance import LIVE, Execution, Instance, Parent, Status
from localazure.functions.durable.store import transactions
from localazure.functions.durable.store.records import (
    Activity,
    Delivery,
    Entity,
    EntityCommit,
    EpisodeCommit,
    InstanceQuery,
    Message,
    Position,
    Rewrite,
    Timer,
    microseconds,
    moment,
    position,
)
from localazure.functions.durable.store.schema import MIGRATIONS
from localazure.functions.durable.store.transactions import marks
from localazure.sqlite.database import Database, Lane, Refused, Transaction

T = TypeVar("T")

# Rows per batch when all instances are read or deleted; a batch takes some tens of milliseconds.
PAGE_SIZE = 500

_LIVE = tuple(str(status) for status in LIVE)
_ALL = InstanceQuery()


class Store:
    """The task hub in one SQLite file."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, MIGRATIONS)
        ((last,),) = self._database.read("SELECT coalesce(max(sequence), 0) FROM inbox")
        self._sequences = itertools.count(last + 1)
        self._lane = Lane()
        self.generation = 0
        """Counts calls of `renew`. Data read in an earlier generation must not be written back."""
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        """Called for every failed transaction, and for all later ones of its generation; not for
        `Refused`."""

    def renew(self) -> None:
        """Start the next generation, based on durable rows only, after a transaction failed."""
        self.generation += 1
        self._lane = Lane()

    def close(self) -> None:
        """Finish the pending transactions, then close. Blocks."""
        self._database.close()

    def message(self, target: str, event: Event, execution_id: str | None = None) -> Message:
        """Return a message with the next sequence number."""
        return Message(
            target=target, event=event, execution_id=execution_id, sequence=next(self._sequences)
        )

    # --- writing -------------------------------------------------------------------------------

    async def create(self, execution: Execution) -> None:
        """See `transactions.create`, and the functions there for the methods below."""
        await self._submit(lambda db: transactions.create(db, execution))

    async def post(self, message: Message) -> None:
        """Put a message into an inbox."""
        await self._submit(lambda db: transactions.post(db, message))

    def complete_activity(self, event_id: int, message: Message) -> asyncio.Future[bool]:
        """Record the end of an activity, once."""
        return self._submit(lambda db: transactions.complete_activity(db, event_id, message))

    async def postpone_activity(self, activity: Activity) -> bool:
        """Postpone an activity."""
        return await self._submit(lambda db: transactions.postpone_activity(db, activity))

    def commit(self, turn: EpisodeCommit, *, is_patient: bool = False) -> asyncio.Future[Delivery]:
        """Commit an episode; see `Database.submit` for `is_patient`."""
        return self._submit(lambda db: transactions.commit(db, turn), is_patient=is_patient)

    async def commit_entity(self, turn: EntityCommit) -> Delivery:
        """Commit a batch of operations."""
        return await self._submit(lambda db: transactions.commit_entity(db, turn))

    async def rewrite(self, rewrites: Sequence[Rewrite], at: datetime) -> None:
        """Set failed instances to Running, all or none."""
        await self._submit(lambda db: transactions.rewrite(db, rewrites, at))

    async def purge(self, instance_ids: Sequence[str]) -> int:
        """Delete finished instances."""
        return await self._submit(lambda db: transactions.purge(db, instance_ids))

    async def put_entity(self, entity: Entity) -> None:
        """Write an entity's row, or delete it."""
        await self._submit(lambda db: transactions.put_entity(db, entity))

    def _submit(
        self, transaction: Transaction[T], *, is_patient: bool = False
    ) -> asyncio.Future[T]:
        lane = self._lane
        future = self._database.submit(transaction, lane, is_patient=is_patient)
        future.add_done_callback(partial(self._on_done, lane))
        return future

    def _on_done(self, lane: Lane, future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, Refused) and lane is self._lane:
            self.on_failure(error)

    # --- reading -------------------------------------------------------------------------------

    def instance(self, instance_id: str) -> Instance | None:
        """Return an instance; None if it does not exist."""
        rows = self._database.read(f"{_SELECT_INSTANCE} WHERE instance_id = ?", (instance_id,))
        return _instance(rows[0]) if rows else None

    def history(self, execution_id: str) -> list[str]:
        """Return the encoded history, one piece per episode."""
        rows = self._database.read(
            "SELECT events FROM history WHERE execution_id = ? ORDER BY episode", (execution_id,)
        )
        return [events for (events,) in rows]

    def query(
        self,
        wanted: InstanceQuery = _ALL,
        *,
        after: Position | None = None,
        limit: int = -1,
    ) -> list[Instance]:
        """Return the instances that meet all conditions, in their order.

        Args:
            wanted: the conditions.
            after: the position of the last instance of the previous page.
            limit: the maximum number; -1: all.
        """
        conditions: list[str] = []
        values: list[Any] = []
        for condition, at in (
            ("created_at_us >= ?", wanted.created_from),
            ("created_at_us <= ?", wanted.created_to),
            ("updated_at_us >= ?", wanted.ended_from),
            ("updated_at_us < ?", wanted.ended_to),
        ):
            if at is not None:
                conditions.append(condition)
                values.append(microseconds(at))
        source = _SELECT_INSTANCE
        if wanted.statuses and LIVE.issuperset(wanted.statuses):
            # Few instances are live. SQLite uses the index only if the query repeats its condition.
            source += " INDEXED BY instances_unfinished"
            conditions.append("status IN ('Pending', 'Running', 'Suspended')")
        if wanted.statuses:
            conditions.append(f"status IN ({marks(wanted.statuses)})")
            values += wanted.statuses
        if wanted.prefix:
            conditions.append("substr(instance_id, 1, ?) = ?")
            values += [len(wanted.prefix), wanted.prefix]
        if wanted.name:
            conditions.append("name = ?")
            values.append(wanted.name)
        follows, order = ("<", "DESC") if wanted.newest_first else (">", "ASC")
        if after is not None:
            conditions.append(f"(created_at_us, instance_id) {follows} (?, ?)")
            values += after
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._database.read(
            f"{source}{where} ORDER BY created_at_us {order}, instance_id {order} LIMIT ?",
            (*values, limit),
        )
        return [_instance(row) for row in rows]

    def pages(self, wanted: InstanceQuery = _ALL) -> Iterator[list[Instance]]:
        """Yield the instances that meet the conditions page by page, to let the event loop run."""
        page = self.query(wanted, limit=PAGE_SIZE)
        while page:
            yield page
            page = self.query(wanted, after=position(page[-1]), limit=PAGE_SIZE)

    def children(self, execution_id: str, statuses: Collection[Status]) -> list[Execution]:
        """Sub-orchestrations of an execution that have one of these statuses."""
        rows = self._database.read(
            f"{_SELECT_INSTANCE} WHERE parent_execution_id = ? AND status IN"
            f" ({marks([*statuses])})",
            (execution_id, *map(str, statuses)),
        )
        return [_instance(row).execution for row in rows]

    def to_start(self) -> list[str]:
        """Live instances whose current execution has no episode yet."""
        rows = self._database.read(
            f"SELECT instance_id FROM instances WHERE started = 0 AND status IN ({marks(_LIVE)})"  # noqa: S608 - placeholders only
            " ORDER BY created_at_us",
            _LIVE,
        )
        return [instance_id for (instance_id,) in rows]

    def inbox(self) -> list[Message]:
        """All waiting messages."""
        rows = self._database.read(
            "SELECT sequence, target, execution_id, event_json FROM inbox ORDER BY sequence"
        )
        return [
            Message(
                sequence=sequence,
                target=target,
                execution_id=execution_id,
                event=json.loads(event_json),
            )
            for sequence, target, execution_id, event_json in rows
        ]

    def activities(self) -> list[Activity]:
        """All activities that have not completed, oldest execution first."""
        rows = self._database.read(
            "SELECT instance_id, execution_id, event_id, name, input_json, not_before_us,"
            " context_json FROM activities ORDER BY rowid"
        )
        return [Activity(**dict(row)) for row in rows]

    def timers(self) -> list[Timer]:
        """All timers that were not consumed by an episode."""
        rows = self._database.read(
            "SELECT instance_id, execution_id, event_id, fire_at FROM timers"
        )
        return [Timer(**dict(row)) for row in rows]

    def entity(self, entity_id: str) -> Entity | None:
        """Return an entity's row, if it has one."""
        rows = self._database.read(f"{_SELECT_ENTITY} WHERE entity_id = ?", (entity_id,))
        return _entity(rows[0]) if rows else None

    def entity_state(self, entity_id: str) -> str | None:
        """Return the JSON text of an entity's state; None if the entity does not exist."""
        entity = self.entity(entity_id)
        return entity and entity.state_json

    def entities(self, prefix: str) -> list[Entity]:
        """Return the rows of entities whose ids begin with `prefix`, in the order of ids."""
        rows = self._database.read(
            f"{_SELECT_ENTITY} WHERE substr(entity_id, 1, ?) = ? ORDER BY entity_id",
            (len(prefix), prefix),
        )
        return [_entity(row) for row in rows]


_SELECT_INSTANCE = """
    SELECT instance_id, execution_id, name, version, input_json, parent_instance_id,
        parent_execution_id, parent_event_id, status, started, custom_status, output, created_at_us,
        max(updated_at_us, coalesce((SELECT recorded_at_us FROM history AS h
            WHERE h.execution_id = instances.execution_id ORDER BY episode DESC LIMIT 1), 0))
        AS last_updated_at_us, opening_json
    FROM instances"""

_SELECT_ENTITY = "SELECT entity_id, state_json, updated_at_us, locked_by FROM entities"


def _entity(row: sqlite3.Row) -> Entity:
    return Entity(
        entity_id=row["entity_id"],
        state_json=row["state_json"],
        updated_at=moment(row["updated_at_us"]),
        locked_by=row["locked_by"],
    )


def _instance(row: sqlite3.Row) -> Instance:
    parent = row["parent_instance_id"] and Parent(
        instance_id=row["parent_instance_id"],
        execution_id=row["parent_execution_id"],
        event_id=row["parent_event_id"],
    )
    return Instance(
        execution=Execution(
            instance_id=row["instance_id"],
            execution_id=row["execution_id"],
            name=row["name"],
            version=row["version"],
            input_json=row["input_json"],
            created_at=moment(row["created_at_us"]),
            parent=parent,
            opening_json=row["opening_json"],
        ),
        status=Status(row["status"]),
        started=bool(row["started"]),
        custom_status=row["custom_status"],
        output=row["output"],
        last_updated_at=moment(row["last_updated_at_us"]),
    )
