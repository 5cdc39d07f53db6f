"""Isolates the items of a pass: one that fails is undone and told, and the others go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable


def failure_of(work: Callable[[], None], connection: sqlite3.Connection) -> Exception | None:
    """Do the work for one item in a savepoint of the transaction.

    Returns:
        The exception of the work, which changed nothing then; None if it succeeded.

    Raises:
        sqlite3.OperationalError: the database failed, such as by a full disk. That is no item's
            fault: the whole transaction fails, and is tried again.
    """
    connection.execute("SAVEPOINT item")
    try:
        work()
    except sqlite3.OperationalError:
        raise
    except Exception as error:  # noqa: BLE001 - the caller gets it
        connection.execute("ROLLBACK TO item")
        connection.execute("RELEASE item")
        return error
    connection.execute("RELEASE item")
    return None
