"""The outbox of events is published again after a failure of its own database."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localazure.outbox.publisher import publishing
from localazure.runtime.environment import Environment
from localazure.storage.operations import Api, Operation
from localazure.storage.outbox import Outbox


class OnBadDisk(Outbox):
    """Fails to delete the first event that was published."""

    failures = 1

    async def published(self, numbers: Sequence[int]) -> None:
        if self.failures:
            self.failures -= 1
            raise sqlite3.OperationalError("disk I/O error")
        await super().published(numbers)


async def test_events_are_published_after_an_error_of_the_database(
    environment: Environment, topic: Any, tmp_path: Path
) -> None:
    outbox = OnBadDisk(tmp_path / "outbox.db")
    put = Operation(Api.PUT_BLOB, "/a/c/b", "client")
    key, _ = environment.event_grid_keys("storage")
    async with publishing(outbox, environment.topic_endpoint("storage"), key):
        for intent in await outbox.intend([(put, None)] * 2):
            await outbox.settle([(intent, {"id": intent.id, "data": {}})])
            await topic.wait_for(
                lambda expected=intent.id: expected in {event["id"] for event in topic.events}
            )
    assert not outbox.failures
    outbox.close()
