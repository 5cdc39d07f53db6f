"""The workspace's tables, without a workspace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from localazure.machinelearning.store import MIGRATIONS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    for migration in MIGRATIONS:
        connection.executescript(migration)
    yield connection
    connection.close()
