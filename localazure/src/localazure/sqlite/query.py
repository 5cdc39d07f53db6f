"""SQL queries of committed data or within a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

Query = Callable[[str, Sequence[Any]], list[sqlite3.Row]]
"""`Database.read`, or a read within a transaction (`querying`)."""


def querying(connection: sqlite3.Connection) -> Query:
    """Return a function that reads within a transaction."""
    return lambda sql, parameters: connection.execute(sql, parameters).fetchall()
