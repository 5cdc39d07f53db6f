from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localazure.sqlite.database import (
    Database,
    DatabaseInUse,
    DatabaseUnusable,
    Lane,
    LaneBroken,
    Refused,
    connect,
    migrate,
)

MIGRATIONS = ("CREATE TABLE notes (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE)",)


class RefusedError(Exception):
    """An error in a transaction of these tests."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "notes.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = Database(path, MIGRATIONS)
    yield database
    database.close()


def note(word: str, *, fails: bool = False) -> Callable[[sqlite3.Connection], int | None]:
    def transaction(connection: sqlite3.Connection) -> int | None:
        number = connection.execute("INSERT INTO notes (word) VALUES (?)", (word,)).lastrowid
        if fails:
            raise RefusedError(word)
        return number

    return transaction


def refuse(_: sqlite3.Connection) -> None:
    raise Refused("not this time")


def words(path: Path) -> list[str]:
    """Read the committed words, as another process would, in the order of writing."""
    with contextlib.closing(connect(path)) as connection:
        return [row["word"] for row in connection.execute("SELECT word FROM notes ORDER BY id")]


class Gate:
    """A transaction that blocks the writing thread, so that later ones share one commit."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self.open = self._is_open.set
        self.commits = 0

    def __call__(self, connection: sqlite3.Connection) -> None:
        self._is_open.wait()
        connection.set_trace_callback(self._count)

    def _count(self, statement: str) -> None:
        self.commits += statement == "COMMIT"


async def test_without_an_fsync_transactions_are_committed_before_the_call_returns(
    path: Path,
) -> None:
    with contextlib.closing(Database(path, MIGRATIONS, is_fsynced=False)) as database:
        first = database.submit(note("first"))
        failing = database.submit(note("failing", fails=True))
        patient = database.submit(note("patient"), is_patient=True)
        assert first.result() == 1
        assert isinstance(failing.exception(), RefusedError)
        assert patient.done()
        assert words(path) == ["first", "patient"]


async def test_a_burst_shares_one_commit_in_the_order_of_its_calls(
    database: Database, path: Path
) -> None:
    gate = Gate()
    calls = [database.write(gate), *(database.write(note(str(number))) for number in range(200))]
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)  # every call has submitted its transaction
    gate.open()
    results = await asyncio.gather(*tasks)
    assert results[1:] == list(range(1, 201))
    assert words(path) == [str(number) for number in range(200)]
    assert gate.commits <= 2  # at most one for the first transaction, and one for all others


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fails=st.lists(st.booleans(), max_size=12))
async def test_a_failing_transaction_does_not_touch_its_neighbours(
    tmp_path_factory: pytest.TempPathFactory, fails: list[bool]
) -> None:
    path = tmp_path_factory.mktemp("database") / "notes.db"
    with contextlib.closing(Database(path, MIGRATIONS)) as database:
        outcomes = await asyncio.gather(
            *(database.write(note(str(n), fails=fail)) for n, fail in enumerate(fails)),
            return_exceptions=True,
        )
    assert [isinstance(outcome, RefusedError) for outcome in outcomes] == fails
    assert words(path) == [str(n) for n, fail in enumerate(fails) if not fail]


async def test_close_finishes_pending_transactions(path: Path) -> None:
    database = Database(path, MIGRATIONS)
    gate = Gate()
    tasks = [
        asyncio.create_task(call)
        for call in (database.write(gate), *(database.write(note(word)) for word in "abc"))
    ]
    await asyncio.sleep(0)
    database.submit(note("patient"), is_patient=True)
    closing = asyncio.create_task(asyncio.to_thread(database.close))
    await asyncio.sleep(0)
    gate.open()
    await closing
    assert words(path) == ["a", "b", "c", "patient"]
    assert (await asyncio.gather(*tasks))[1:] == [1, 2, 3]


def test_writes_of_a_closed_loop_do_not_stop_the_writer(path: Path) -> None:
    database = Database(path, MIGRATIONS)
    gate = Gate()

    async def hand_in_and_leave() -> None:
        tasks = [asyncio.create_task(database.write(call)) for call in (gate, note("left behind"))]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    asyncio.run(hand_in_and_leave())
    gate.open()
    assert asyncio.run(database.write(note("later"))) == 2
    database.close()
    assert words(path) == ["left behind", "later"]


@pytest.mark.parametrize(("is_fsynced", "synchronous"), [(True, 2), (False, 1)])  # FULL, NORMAL
def test_commits_are_synced_where_asked_and_readers_do_not_wait(
    path: Path, *, is_fsynced: bool, synchronous: int
) -> None:
    path.parent.mkdir()
    with contextlib.closing(connect(path, is_fsynced=is_fsynced)) as connection:
        modes = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert modes == {"journal_mode": "wal", "synchronous": synchronous, "foreign_keys": 1}


def test_migrations_run_once_each_and_keep_the_rows(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.closing(connect(path)) as connection:
        migrate(connection, MIGRATIONS)
        connection.execute("INSERT INTO notes (word) VALUES ('kept')")
        migrate(connection, (*MIGRATIONS, "ALTER TABLE notes ADD COLUMN colour TEXT"))
        migrate(connection, (*MIGRATIONS, "ALTER TABLE notes ADD COLUMN colour TEXT"))
        (row,) = connection.execute("SELECT * FROM notes")
        assert dict(row) == {"id": 1, "word": "kept", "colour": None}
        with pytest.raises(sqlite3.OperationalError):
            migrate(connection, ("", "", "CREATE TABLE half (id); CREATE TABLE half (id)"))
        connection.rollback()
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2


async def test_a_file_has_one_owner(path: Path) -> None:
    first = Database(path, MIGRATIONS)
    with pytest.raises(DatabaseInUse, match=rf"notes\.db is in use by process {os.getpid()}: stop"):
        Database(path, MIGRATIONS)
    assert await first.write(note("undisturbed")) == 1
    first.close()
    second = Database(path, MIGRATIONS)
    assert await second.write(note("next")) == 2
    second.close()


def test_a_damaged_file_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    with pytest.raises(DatabaseUnusable, match=r"notes\.db is damaged .*: move it away"):
        Database(path, MIGRATIONS)
    assert path.read_bytes().startswith(b"this is no database")  # no row was lost


def test_a_file_of_a_later_version_is_not_changed(path: Path) -> None:
    Database(path, (*MIGRATIONS, "ALTER TABLE notes ADD COLUMN colour TEXT")).close()
    with pytest.raises(DatabaseUnusable, match="has schema 2, and this version knows 1"):
        Database(path, MIGRATIONS)


async def test_patient_transactions_share_the_next_commit(database: Database, path: Path) -> None:
    gate = Gate()
    gate.open()
    await database.write(gate)  # counts commits from here
    before = gate.commits
    patient = [database.submit(note(str(number)), is_patient=True) for number in range(5)]
    assert await database.write(note("5")) == 6
    assert all(future.done() for future in patient)
    assert words(path) == [str(number) for number in range(6)]
    assert gate.commits - before <= 2  # the writer may already have started the first one


async def test_a_broken_lane_runs_nothing_more(database: Database, path: Path) -> None:
    lane = Lane()
    outcomes = await asyncio.gather(
        database.submit(note("a"), lane),
        database.submit(refuse, lane),
        database.submit(note("b"), lane),
        database.submit(note("lost", fails=True), lane),
        database.submit(note("after"), lane),
        database.submit(note("other")),
        database.submit(note("other lane"), Lane()),
        return_exceptions=True,
    )
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [int, Refused, int, RefusedError, LaneBroken, int, int]
    with pytest.raises(LaneBroken):
        await database.submit(note("later"), lane)
    assert words(path) == ["a", "b", "other", "other lane"]


async def test_a_commit_that_fails_breaks_its_lanes(database: Database, path: Path) -> None:
    lane = Lane()

    def drop_out(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO notes (word) VALUES ('gone')")
        connection.execute("ROLLBACK")  # like SQLite when the disk is full
        raise sqlite3.OperationalError("disk full")

    with pytest.raises(sqlite3.OperationalError, match="disk full"):
        await database.submit(drop_out, lane)
    with pytest.raises(LaneBroken):
        await database.submit(note("later"), lane)
    assert await database.write(note("without a lane")) == 1
    assert words(path) == ["without a lane"]


class BadDisk(sqlite3.Connection):
    """A connection that refuses some statements once."""

    refused: ClassVar[list[str]] = []

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql in self.refused:
            self.refused.remove(sql)
            raise sqlite3.OperationalError(f"disk I/O error in {sql}")
        return super().execute(sql, *parameters)


async def test_writes_continue_after_a_rollback_that_failed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=BadDisk))
    database = Database(path, MIGRATIONS)
    BadDisk.refused.extend(["COMMIT", "ROLLBACK"])
    async with asyncio.timeout(30):
        with pytest.raises(sqlite3.OperationalError, match="in COMMIT"):
            await database.write(note("refused"))
        with pytest.raises(sqlite3.OperationalError, match="within a transaction"):
            await database.write(note("finds the old transaction"))
        assert await database.write(note("kept")) == 1
    assert BadDisk.refused == []
    assert words(path) == ["kept"]
    database.close()
