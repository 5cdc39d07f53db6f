"""Work that one of several hosts does for all: timers, and scans for blobs.

It is the host that has the timers' database. The kernel releases its lock when its owner dies;
another host takes it within `RETRY_SECONDS`, reads what the timers remember, and makes up for what
was missed. On Azure leases of blobs do the same. A host that hangs keeps the lock until it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from localazure.functions import logs
from localazure.functions.triggers.timer.trigger import MIGRATIONS
from localazure.sqlite.database import Database, DatabaseInUse, Transaction

T = TypeVar("T")

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.timer")

RETRY_SECONDS: Final = 1.0


class Listener(Protocol):
    """Waits for what triggers one function."""

    async def start(self) -> None:
        """Begin; what it waits for may be away as yet."""
        ...

    async def stop(self) -> None:
        """Begin nothing new; what runs goes on."""
        ...

    async def finish(self) -> None:
        """End, after the drain: cancel what still runs and release every resource."""
        ...


class DatabaseInTurn:
    """The database of timers, once the host that had it has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None

    async def acquire(self) -> None:
        """Wait until it is this host's."""
        while self._database is None:
            try:
                self._database = Database(self._path, MIGRATIONS)
            except DatabaseInUse:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                _LOG.info("timers and scans for blobs run on this host")

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[sqlite3.Row]:
        """See `Database.read`."""
        assert self._database is not None
        return self._database.read(sql, parameters)

    async def write(self, transaction: Transaction[T]) -> T:
        """See `Database.write`."""
        assert self._database is not None
        return await self._database.write(transaction)

    def close(self) -> None:
        """Let another host have it."""
        if self._database is not None:
            self._database.close()


class ListenerInTurn:
    """A listener that starts when this host has the database."""

    def __init__(self, listener: Listener, database: DatabaseInTurn) -> None:
        self._listener = listener
        self._database = database
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to wait for it."""
        self._starting = asyncio.create_task(self._start())

    async def stop(self) -> None:
        """Begin nothing new."""
        if self._starting is not None:
            self._starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._starting
        await self._listener.stop()

    async def finish(self) -> None:
        """End it; the host has drained."""
        await self._listener.finish()

    async def _start(self) -> None:
        try:
            await self._database.acquire()
            await self._listener.start()
        except Exception:  # noqa: BLE001 - it would be lost in the task
            _LOG.exception("timers or scans for blobs do not run on this host")
