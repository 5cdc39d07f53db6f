from __future__ import annotations

import logging
import random
from datetime import datetime, timedelta
from typing import Any

import pytest

from handlers.platform.instances import (
    BROKEN,
    LIVE,
    exists,
    find_instances,
    is_broken,
    is_live,
    wake_up,
)
from tests.fakes.durable_client import STARTED_AT, TaskHub


@pytest.mark.parametrize(
    ("runtime_status", "live", "broken"),
    [
        ("Pending", True, False),
        ("Running", True, False),
        ("Suspended", True, False),
        ("ContinuedAsNew", True, False),
        ("Completed", False, False),
        ("Failed", False, True),
        ("Terminated", False, True),
    ],
)
async def test_what_a_status_says(runtime_status: str, *, live: bool, broken: bool) -> None:
    hub = TaskHub()
    hub.add("a", "retraining", runtime_status)
    status = await hub.get_status("a")
    assert (exists(status), is_live(status), is_broken(status)) == (True, live, broken)


async def test_a_missing_instance_neither_lives_nor_exists() -> None:
    for missing in (await TaskHub().get_status("a"), None):
        assert (exists(missing), is_live(missing)) == (False, False)


async def test_a_live_instance_is_woken_and_an_ended_one_is_not() -> None:
    hub: Any = TaskHub()
    hub.add("a", "retraining")
    hub.add("b", "retraining", "Completed")
    assert await wake_up(hub, "a")
    assert not await wake_up(hub, "b")
    assert not await wake_up(hub, "c")
    assert hub.raised == [("a", "wake_up")]


async def test_an_event_that_does_not_reach_a_live_instance_is_an_error() -> None:
    class Deaf(TaskHub):
        async def raise_event(self, instance: str, event: str) -> None:
            raise ConnectionError(instance, event)

    hub: Any = Deaf()
    hub.add("a", "retraining")
    with pytest.raises(ConnectionError):
        await wake_up(hub, "a")


async def find(hub: Any, *, to: datetime, **filters: Any) -> list[str]:
    return sorted(await find_instances(hub, created_from=STARTED_AT, created_to=to, **filters))


@pytest.mark.parametrize("count", [0, 99, 100, 250])
async def test_no_instance_is_lost_to_the_page_limit(count: int) -> None:
    ages = random.Random(count).sample(range(3_600), count)
    hub = TaskHub()
    for number, age in enumerate(ages):
        hub.add(f"run-{number}", "retraining", created=STARTED_AT + timedelta(seconds=age))
    found = await find(hub, to=STARTED_AT + timedelta(hours=1))
    assert len(found) == count  # before the names: their difference takes pytest minutes to show
    assert found == sorted(hub.documents)
    if len(ages) < 100:
        assert hub.queries == 1


async def test_instances_are_found_by_time_status_and_prefix() -> None:
    hub = TaskHub()
    hub.add("digits-aa-1", "retraining")
    hub.add("digits-bb-1", "retraining", "Completed")
    hub.add("digits-cc-1", "retraining", "Failed")
    hub.add("letters-aa-1", "retraining")
    hub.add("digits-zz-1", "retraining", created=STARTED_AT - timedelta(seconds=1))
    to = STARTED_AT + timedelta(hours=1)
    assert await find(hub, to=to, statuses=LIVE | BROKEN) == [
        "digits-aa-1",
        "digits-cc-1",
        "letters-aa-1",
    ]
    assert await find(hub, to=to, prefix="digits-", statuses=LIVE) == ["digits-aa-1"]
    assert await find(hub, to=STARTED_AT) == ["digits-aa-1"]


async def test_more_than_a_page_in_one_second_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    hub = TaskHub()
    for number in range(101):
        hub.add(f"run-{number:03}", "retraining", created=STARTED_AT)
    with caplog.at_level(logging.WARNING):
        found = await find(hub, to=STARTED_AT + timedelta(hours=1))
    assert len(found) == 100
    assert "some are missed" in caplog.text
