from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from handlers.platform.rollout_index import (
    read_steps,
    record_outcome,
    record_step,
    recorded_end,
    trial_time,
)
from orchestrations.contracts.rollouts import RolloutOutcome
from tests.fakes.azure_ml import FIRST_WRITE, World, make_world
from tests.spying import spy

NOW = datetime(2026, 11, 23, tzinfo=UTC)
ROLLOUT = "rollout-live-7"


@pytest.fixture
def world() -> World:
    return make_world()


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
    vars(after_a_restart.clients).update(records=world.clients.records)
    record_step(after_a_restart.clients, ROLLOUT, 0, NOW.replace(hour=1))
    assert read_steps(after_a_restart.clients, ROLLOUT) == {"0": NOW}


@pytest.mark.parametrize(
    ("steps", "outcome", "minutes"),
    [
        ({"deploying": 0, "live": 40}, None, 40),
        ({"deploying": 0, "live": 40}, "live", 40),
        ({"deploying": 0, "live": 40}, "rolled_back", 40),  # it was live before
        ({"deploying": 0, "testing": 10}, "failed", 60),
        ({"deploying": 0, "testing": 10}, None, None),  # it goes on, or was terminated
        ({"deploying": 0}, "live", None),  # recorded when the previous deployment is deleted
        ({"live": 40}, "live", None),
        ({}, "superseded", None),
    ],
)
def test_a_trial_lasts_from_the_deployment_until_it_is_live_or_ends(
    world: World, steps: dict[str, int], outcome: RolloutOutcome | None, minutes: int | None
) -> None:
    begun = FIRST_WRITE + timedelta(seconds=len(steps)) - timedelta(minutes=60)
    for step, minute in steps.items():
        record_step(world.clients, ROLLOUT, step, begun + timedelta(minutes=minute))
    if outcome is not None:
        record_outcome(world.clients, ROLLOUT, outcome)
    expected = None if minutes is None else timedelta(minutes=minutes)
    assert trial_time(world.clients, ROLLOUT, recorded_end(world.clients, ROLLOUT)) == expected
