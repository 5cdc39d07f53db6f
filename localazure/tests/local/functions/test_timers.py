from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from harness.waiting import eventually

HOURLY = {"STARTUP_SCHEDULE": "0 0 * * * *"}


async def test_a_schedule_and_a_start_and_a_hand_fire_timers(running_app: Any, seen: Any) -> None:
    key = {"x-functions-key": "master-key"}
    async with running_app("timers", **HOURLY) as (_, client):
        await eventually(lambda: len(seen.of("every_second")) >= 2)
        await eventually(lambda: len(seen.of("on_startup")) == 1)
        assert seen.of("yearly") == []
        async with client.post(
            "/admin/functions/yearly", headers=key, json={"input": ""}
        ) as response:
            assert response.status == 202
        await eventually(lambda: len(seen.of("yearly")) == 1)
    assert not any(note["past_due"] for note in seen.of("every_second"))


async def test_a_missed_occurrence_is_made_up_for_once(
    running_app: Any, seen: Any, tmp_path: Path
) -> None:
    async with running_app("timers", **HOURLY):
        pass
    assert seen.of("yearly") == []
    # Simulate a host that was down since the end of 2019.
    connection = sqlite3.connect(tmp_path / "state" / "timers.db")
    with connection:
        connection.execute(
            "UPDATE timers SET last = '2019-01-01T00:00:00+00:00', "
            "next = '2020-01-01T00:00:00+00:00' WHERE function = 'yearly'"
        )
    connection.close()
    async with running_app("timers", **HOURLY):
        await eventually(lambda: len(seen.of("yearly")) == 1)
    async with running_app("timers", **HOURLY):
        await eventually(lambda: len(seen.of("on_startup")) == 3)
    (note,) = seen.of("yearly")
    assert note["past_due"]
    assert note["status"]["Next"] == "2020-01-01T00:00:00+00:00"
