"""States that an earlier version wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from localazure.machinelearning.store import MIGRATIONS, end_schedules, list_resources, put_resource
from localazure.sqlite.database import Database

WITH_SCHEDULES = 3
"""The last schema with a table of schedules."""


async def test_a_state_with_schedules_starts_and_names_them_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "workspace.db"
    earlier = Database(file, MIGRATIONS[:WITH_SCHEDULES])
    for name in ("nightly", "weekly"):
        await earlier.write(
            lambda connection, name=name: (
                put_resource(connection, "schedules", name, "", {"properties": {}}, now=1),
                connection.execute("INSERT INTO schedule VALUES (?, 2)", (name,)),
            )
        )
    earlier.close()
    now = Database(file, MIGRATIONS)
    await now.write(end_schedules)
    await now.write(end_schedules)
    (line,) = caplog.messages
    assert line.startswith("no longer run: the schedules nightly, weekly")
    assert list_resources(now.read, "schedules") == []
    now.close()
