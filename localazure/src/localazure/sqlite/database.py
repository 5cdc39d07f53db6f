"""SQLite with group commit: many small durable transactions with few fsyncs.

One thread owns the only writing connection. It takes all waiting transactions, runs each in its own
savepoint, commits them together, and then notifies their callers. An awaited transaction is on disk
(WAL, `synchronous=FULL`: it survives power loss, not only kill -9).

Without fsync, a commit takes less time than a switch to a thread, so it is made at once, on the
event loop.

A file has one owner at a time, because owners cache its contents; except if `is_shared`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from localazure.errors import StartError
from localazure.processes import owner_lock
from localazure.processes.owner_lock import OwnedElsewhere
from localazure.sqlite.crash_points import COMMIT_AFTER, COMMIT_BEFORE, COMMIT_WITHIN, crash_point

T = TypeVar("T")
Transaction = Callable[[sqlite3.Connection], T]
_Job = tuple[Transaction[Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop, "Lane | None"]
_Outcome = tuple[_Job, Any, BaseException | None]

# How long a patient transaction waits for others to share its commit.
PATIENCE_SECONDS = 0.002

_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)

# Limits how long the first transaction of a burst waits for the last one.
MAX_TRANSACTIONS_PER_COMMIT = 1000


def connect(path: Path, *, is_fsynced: bool = True) -> sqlite3.Connection:
    """Open a connection in WAL mode, without implicit transactions; see `Database`."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA busy_timeout=10000")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if is_fsynced else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys=ON")
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, migrations: Sequence[str]) -> None:
    """Bring the schema up to date: `migrations[n]` is the SQL script from version n to n+1.

    Raises:
        DatabaseUnusable: a later version of localazure wrote the file.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        (_, _, file) = connection.execute("PRAGMA database_list").fetchone()
        raise DatabaseUnusable(
            f"{file} has schema {version}, and this version knows {len(migrations)}: use the "
            "version that wrote it, or give this one a state folder of its own"
        )
    for number, script in enumerate(migrations[version:], start=version + 1):
        connection.executescript(f"BEGIN;\n{script}\n;PRAGMA user_version={number};\nCOMMIT;")


class Refused(Exception):
    """A transaction was refused and changed nothing. Later transactions of its lane run."""


class LaneBroken(Exception):
    """The transaction was not run, because an earlier one of the same lane failed."""


class Lane:
    """A sequence of transactions that are submitted before the earlier ones are durable.

    A transaction is durable only if all earlier ones are. After one fails (with any exception but
    `Refused`), no later one of the lane runs. The lane stays broken; use a new one.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None


class DatabaseInUse(StartError):
    """Another process, or another `Database` of this one, owns the file."""


class DatabaseUnusable(StartError):
    """The file is damaged, or a later version wrote it. It was not changed."""


class Database:
    """One SQLite file with group commit, and with blocking reads on the event loop.

    Args:
        path: the file; it and its folder are created if missing. `<path>.lock` names its owner.
        migrations: see `migrate`.
        is_fsynced: whether a commit survives not only a crash of the process but also one of the
        machine. An fsync takes a millisecond or two, so commits are made in a thread then.
        is_shared: whether processes that all set this may write the file at the same time. Their
        transactions must read all data that they depend on; SQLite's lock serialises them.

    Raises:
        DatabaseInUse: the file has another owner, which the message names.
        DatabaseUnusable: the file is damaged, or a later version wrote it.
    """

    def __init__(
        self,
        path: Path,
        migrations: Sequence[str],
        *,
        is_fsynced: bool = True,
        is_shared: bool = False,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = owner_lock.acquire(
                path.with_name(f"{path.name}.lock"), is_shared=is_shared
            )
        except OwnedElsewhere as error:
            raise DatabaseInUse(
                f"{path} is {error}: stop that one, or give this one a state folder of its own"
            ) from None
        opened: list[sqlite3.Connection] = []
        try:
            # Only one of the processes that share a file creates it.
            opening = path.with_name(f"{path.name}.opening")
            with owner_lock.wait_for(opening) if is_shared else contextlib.nullcontext():
                path.touch(0o600)  # those beside it get its mode
                opened.append(connect(path, is_fsynced=is_fsynced))
                migrate(opened[0], migrations)
                opened.append(connect(path))
        except BaseException as error:
            for connection in opened:
                connection.close()
            self._lock.close()
            if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
                raise DatabaseUnusable(
                    f"{path} is damaged ({error}): move it away, together with {path.name}-wal, "
                    "to begin with an empty one"
                ) from error
            raise
        self._writer, self._reader = opened
        self._closed = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._patient: list[_Job] = []
        self._patience: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None
        if is_fsynced:
            self._thread = threading.Thread(target=self._commit_batches, name=f"commit {path.name}")
            self._thread.start()

    async def write(self, transaction: Transaction[T]) -> T:
        """Run a transaction and return its result once it is durable.

        If the transaction raises an exception, only this transaction is rolled back.
        """
        return await self.submit(transaction)

    def submit(
        self, transaction: Transaction[T], lane: Lane | None = None, *, is_patient: bool = False
    ) -> asyncio.Future[T]:
        """Submit a transaction. The future has the result or exception of `write`.

        Transactions run in the order of submission.

        Args:
            transaction: the transaction to run.
            lane: the transactions that it depends on.
            is_patient: no caller waits for it, so it may be committed with the next one, at most
            PATIENCE_SECONDS later. Only one event loop may use this.
        """
        if self._closed:  # no thread would resolve the future
            raise sqlite3.ProgrammingError("the database is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = (transaction, future, loop, lane)
        if self._thread is None:
            _resolve(self._commit([job]))
        elif is_patient:
            self._patient.append(job)
            if self._patience is None:
                self._patience = loop.call_later(PATIENCE_SECONDS, self._flush)
        else:
            self._flush()
            self._jobs.put(job)
        return future

    def _flush(self) -> None:
        for job in self._patient:
            self._jobs.put(job)
        self._patient.clear()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def read(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query over committed data. It blocks, so use short queries only."""
        return self._reader.execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Finish the pending transactions, then close. Blocks until they are on disk."""
        self._closed = True
        self._flush()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self._reader.close()
        self._writer.close()
        self._lock.close()

    def _commit_batches(self) -> None:
        while (first := self._jobs.get()) is not None:
            batch = [first]
            closing = False
            while len(batch) < MAX_TRANSACTIONS_PER_COMMIT and not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    closing = True
                    break
                batch.append(job)
            _notify(self._commit(batch))
            if closing:
                return

    def _commit(self, batch: list[_Job]) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        try:
            crash_point(COMMIT_BEFORE)
            self._writer.execute("BEGIN IMMEDIATE")
            outcomes = [self._run(job) for job in batch]
            crash_point(COMMIT_WITHIN)
            if self._writer.in_transaction:
                self._writer.execute("COMMIT")
            crash_point(COMMIT_AFTER)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            # If the disk refuses this, too, the next transaction fails and tries it again.
            with contextlib.suppress(sqlite3.Error):
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
            outcomes = [(job, None, error) for job in batch]
            for *_, lane in batch:
                if lane is not None:
                    lane.error = lane.error or error
        return outcomes

    def _run(self, job: _Job) -> _Outcome:
        transaction, *_, lane = job
        if lane is not None and lane.error is not None:
            return job, None, LaneBroken(f"an earlier transaction failed: {lane.error}")
        self._writer.execute("SAVEPOINT one")
        try:
            result = transaction(self._writer)
        except Exception as error:
            if not self._writer.in_transaction:
                raise  # for example a full disk: SQLite has rolled back the whole batch
            self._writer.execute("ROLLBACK TO one")
            self._writer.execute("RELEASE one")
            if lane is not None and not isinstance(error, Refused):
                lane.error = error
            return job, None, error
        self._writer.execute("RELEASE one")
        return job, result, None


def _notify(outcomes: list[_Outcome]) -> None:
    # One wake-up for each event loop, not one for each caller.
    for loop in {job[2] for job, _, _ in outcomes}:
        mine = [outcome for outcome in outcomes if outcome[0][2] is loop]
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:  # the loop is closed and has no callers
            continue


def _resolve(outcomes: list[_Outcome]) -> None:
    for (_, future, *_), result, error in outcomes:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
