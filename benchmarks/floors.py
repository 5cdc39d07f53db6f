"""Floors: the best that the machine can do, for comparison with the parts."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

COMMITS = 1000


def commits_per_second(folder: Path, commits: int = COMMITS) -> float:
    """Measure one-row transactions in sequence; return their number per second.

    A bare SQLite file in WAL mode with `synchronous=FULL`: each commit is an fdatasync.
    """
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "floor.db", isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE IF NOT EXISTS rows (value TEXT)")
        began = time.perf_counter()
        for number in range(commits):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO rows VALUES (?)", (f"row {number} of the floor",))
            connection.execute("COMMIT")
        return commits / (time.perf_counter() - began)
    finally:
        connection.close()
