"""Fixtures with the workspace's tables, without a workspace."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.resources.datastores import put_configured
from localazure.machinelearning.store import MIGRATIONS


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    for migration in MIGRATIONS:
        connection.executescript(migration)
    put_configured(connection, Configuration(), 0)
    yield connection
    connection.close()
