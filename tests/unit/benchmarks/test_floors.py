from __future__ import annotations

import sqlite3
from pathlib import Path

from benchmarks.floors import commits_per_second


def test_the_floor_is_one_row_a_commit_in_wal_mode(tmp_path: Path) -> None:
    assert commits_per_second(tmp_path, commits=10) > 0
    assert commits_per_second(tmp_path, commits=5) > 0
    connection = sqlite3.connect(tmp_path / "floor.db")
    assert connection.execute("SELECT count(*) FROM rows").fetchone() == (15,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
