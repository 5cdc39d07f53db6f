from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from handlers.landing.forgetting import list_requests
from handlers.operate.api.forgotten import Forget, forget
from tests.fakes.azure_ml import World
from tests.fakes.durable_client import TaskHub
from tests.unit.orchestrations.examples import PIPELINE

NOW = datetime(2026, 11, 28, tzinfo=UTC)


class DownOnce(TaskHub):
    """The first instance cannot be started."""

    is_down = True

    async def start_new(self, *given: Any, **named: Any) -> Any:
        if self.is_down:
            self.is_down = False
            raise ConnectionError("the task hub is down")
        return await super().start_new(*given, **named)


async def test_a_request_that_could_not_be_started_is_repeated_and_not_doubled(
    world: World,
) -> None:
    """Found by the simulation, seed 3402: a task hub that was down for hours left a hundred."""
    source, hub = PIPELINE.source, DownOnce()
    address = f"{world.clients.blobs.url.rstrip('/')}/{source.container}/{source.prefix}a.png"
    asked = Forget(blobs=[address], reason="a person asks for it")

    async def ask(minutes: int) -> str:
        at, by_name = NOW + timedelta(minutes=minutes), {PIPELINE.name: PIPELINE}
        return (await forget(world.clients, by_name, hub, asked, now=at)).id  # type: ignore[arg-type] - the fake

    with pytest.raises(ConnectionError):
        await ask(0)
    first = await ask(1)
    assert [each.id for each in list_requests(world.clients)] == [first]
    # That one may have passed what was uploaded since.
    second = await ask(2)
    assert [each.id for each in list_requests(world.clients)] == [second, first]
