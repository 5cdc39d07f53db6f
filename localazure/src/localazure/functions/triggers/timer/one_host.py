"""Work that only one of several hosts does: timers and scans for blobs.

The host that has locked the timers' database does this work. When it dies, the kernel releases the
lock. Another host takes the lock within `RETRY_SECONDS`, reads the status of the timers, and fires
the missed ones. Azure uses blob leases for this. A host that hangs keeps the lock until it ends.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from localazure.functions import logs
from localazure.processes.background import cancel
from localazure.sqlite.database import Database, DatabaseInUse, Transaction

T = TypeVar("T")

_LOG = logging.getLogger(f"{logs.HOST_LOGGER}.timer")

RETRY_SECONDS: Final = 1.0

MIGRATIONS: Final = (
    """
    CREATE TABLE timers (
        function TEXT PRIMARY KEY,
        last TEXT NOT NULL,
        next TEXT NOT NULL,
        last_updated TEXT NOT NULL
    )
    """,
)


class Listener(Protocol):
    """Waits for the events of a trigger."""

    async def start(self) -> None:
        """Start listening; the service may still be unreachable."""
        ...

    async def stop(self) -> None:
        """Start no more invocations; running invocations continue."""
        ...

    async def finish(self) -> None:
        """End after the drain: cancel running invocations and release every resource."""
        ...


class DatabaseInTurn:
    """The timers' database, available when the host that has locked it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None

    async def acquire(self) -> None:
        """Wait until this host has locked the database."""
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
        """Close the database, so that another host can take over."""
        if self._database is not None:
            self._database.close()


class ListenerInTurn:
    """A listener that starts when this host has locked the database."""

    def __init__(self, listener: Listener, database: DatabaseInTurn) -> None:
        self._listener = listener
        self._database = database
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start waiting for the database."""
        self._starting = asyncio.create_task(self._start())

    async def stop(self) -> None:
        """Start no more invocations."""
        await cancel(self._starting)
        await self._listener.stop()

    async def finish(self) -> None:
        """End the listener after the drain."""
        await self._listener.finish()

    async def _start(self) -> None:
        try:
            await self._database.acquire()
            await self._listener.start()
        except Exception:  # noqa: BLE001 - nothing awaits the task
            _LOG.exception("timers or scans for blobs do not run on this host")
