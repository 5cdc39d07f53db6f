from __future__ import annotations

from datetime import UTC, datetime

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from handlers.platform.rollout_index import read_steps, record_step
from handlers.platform.settings import Settings
from handlers.platform.telemetry import Telemetry
from tests.fakes.azure_ml import World, make_world
from tests.spying import spy

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ROLLOUT = "rollout-live-7"


@pytest.fixture
def world() -> World:
    made = make_world()
    vars(made.clients).update(telemetry=Telemetry(Settings({}), [InMemorySpanExporter()]))
    return made


def test_a_step_that_is_observed_again_and_again_is_written_once(world: World) -> None:
    with spy(world.records, "upload_blob") as uploads:
        for step in (0, 0, 0, 1, 1):
            record_step(world.clients, ROLLOUT, step, NOW)
    written = [call.args[0] for call in uploads.call_args_list]
    assert written == [f"rollouts/{ROLLOUT}/steps/{step}.json" for step in (0, 1)]
    assert read_steps(world.clients, ROLLOUT) == {"0": NOW, "1": NOW}


def test_a_step_that_another_process_wrote_keeps_its_time(world: World) -> None:
    record_step(world.clients, ROLLOUT, 0, NOW)
    after_a_restart = make_world()
    vars(after_a_restart.clients).update(
        telemetry=world.clients.telemetry, records=world.clients.records
    )
    record_step(after_a_restart.clients, ROLLOUT, 0, NOW.replace(hour=1))
    assert read_steps(after_a_restart.clients, ROLLOUT) == {"0": NOW}
