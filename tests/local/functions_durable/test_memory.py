"""What an instance leaves in memory when it has finished: nothing."""

# The engine's insides are the subject.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from localazure.functions.durable import live_instances
from tests.local.functions_durable.tiny_app import TinyApp, eventually, running


async def test_nothing_stays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_instances, "MAX_CACHED_CHARACTERS", 1)  # every episode reads the store
    app = TinyApp()

    @app.activity
    def double(number: int) -> int:
        return 2 * number

    @app.orchestrator
    def mixed(context: df.DurableOrchestrationContext) -> Any:
        timer: Any = context.create_timer(context.current_utc_datetime + timedelta(days=1))
        yield context.task_any([context.call_activity("double", 1), timer])
        timer.cancel()
        yield context.task_all([context.call_activity("double", n) for n in range(3)])
        return "done"

    async with running(app, tmp_path) as hub:
        ids = [await hub.client.start_new("mixed") for _ in range(10)]
        for instance_id in ids:
            assert (await hub.until(instance_id)).output == "done"
        dispatcher = hub.extension._dispatcher
        await eventually(lambda: not dispatcher._orchestrations._running)
        assert not dispatcher._mail._waiting
        await eventually(lambda: not dispatcher._activities._ended)
        assert not dispatcher._activities._scheduled
        assert len(dispatcher._timers) == 0
        assert not dispatcher._live._cached
        assert dispatcher._live._characters == 0
