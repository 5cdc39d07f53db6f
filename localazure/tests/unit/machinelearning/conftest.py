"""The workspace's tables, and a workspace without services."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from localazure.faults.injector import Injector
from localazure.faults.plan import Part
from localazure.machinelearning.configuration import Configuration
from localazure.machinelearning.events import EventOutbox
from localazure.machinelearning.resources.datastores import put_configured
from localazure.machinelearning.store import MIGRATIONS
from localazure.machinelearning.workspace import Workspace
from localazure.runtime.environment import Environment, Ports
from localazure.sqlite.database import Database


@contextlib.contextmanager
def _tables() -> Generator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    for migration in MIGRATIONS:
        connection.executescript(migration)
    put_configured(connection, Configuration(), 0)
    yield connection
    connection.close()


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with _tables() as connection:
        yield connection


@pytest.fixture(scope="session")
def new_connection() -> Callable[[], AbstractContextManager[sqlite3.Connection]]:
    """Makes tables for each example of a property."""
    return _tables


@pytest.fixture
def pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a package pyspark, beside a Java: files without content."""
    for file in ("packages/pyspark/__init__.py", "java/bin/java"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return tmp_path / "packages" / "pyspark"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment whose ports are not used."""
    ports = Ports(**dict.fromkeys(Ports.__dataclass_fields__, 1))
    return Environment.draw(tmp_path, app=tmp_path, ports=ports)


@pytest.fixture
def workspace(environment: Environment) -> Iterator[Workspace]:
    database = Database(environment.state / "workspace.db", MIGRATIONS, is_fsynced=False)
    yield Workspace(
        environment=environment,
        configuration=Configuration(),
        database=database,
        events=EventOutbox(database),
        clock=lambda: 0.0,
        faults=Injector(environment.state, Part.AZURE_ML),
    )
    database.close()
