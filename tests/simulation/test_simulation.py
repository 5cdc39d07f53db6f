"""The short form of `make simulate`, and what the long form found."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import datetime
from typing import get_args
from unittest.mock import patch

import pytest

from handlers.landing import freezing
from handlers.landing.forgetting import check_none_forgotten_since
from handlers.platform.clients import Clients
from tests.simulation.drawing import draw
from tests.simulation.features import KEPT
from tests.simulation.features.forgetting import Forget
from tests.simulation.story import HOUR, Crash, Deploy, EveryActivityTwice, QuestionFate, Upload
from tests.simulation.task_hub import ActivityCall, ExecutionMode
from tests.simulation.trial import check_well, try_seed, try_story
from tests.simulation.weeks import FIRST, quiet_week
from tests.simulation.world import World


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_week_of_faults_ends_as_it_should(seed: int) -> None:
    trial = try_seed(seed)
    assert not trial.problems, str(trial)


@pytest.mark.parametrize("seed", range(13, 17))
def test_a_week_in_which_every_activity_runs_twice_has_each_effect_once(seed: int) -> None:
    story = draw(seed)
    trial = try_story(replace(story, items=(*story.items, EveryActivityTwice())))
    assert not trial.problems, str(trial)


@pytest.mark.parametrize("name", KEPT)
def test_what_was_found_stays_mended(name: str) -> None:
    trial = try_story(KEPT[name])
    assert not trial.problems, str(trial)


def test_new_data_does_not_wait_for_people() -> None:
    asked = (
        Deploy(at=100.0, floor=0.8, changes=("approvals",)),
        FIRST,
        Upload(at=2 * HOUR, path="2.png", content="two"),
        QuestionFate(number=1, end="is not answered"),
    )
    runs = sorted(
        check_well(quiet_week(*asked)).runs.values(), key=lambda it: it.instance.created_at
    )
    assert [each.state for each in runs] == ["superseded", "succeeded"]


def test_what_is_forgotten_at_any_moment_of_a_freeze_is_found() -> None:
    """Also if its contents are kept, and the manifests searched, just before the commit."""

    def problems() -> list[str]:
        upload = Upload(at=9_387.2, path="0-2.png", content="content 0 2")
        moments = (9_692.2 + tenth / 10 for tenth in range(8))
        stories = (quiet_week(upload, Forget(at=moment)) for moment in moments)
        return [problem for story in stories for problem in try_story(story).problems]

    def only_before(clients: Clients, at: datetime, *, committed: str | None = None) -> None:
        if committed is None:
            check_none_forgotten_since(clients, at)

    assert problems() == []
    with patch.object(freezing, "check_none_forgotten_since", only_before):
        assert problems(), "a planted mistake"


def calls_beside_one_another() -> range:
    """The numbers of the calls that one run makes between its freeze and its job."""
    world = World(quiet_week(FIRST))
    ended: dict[str, int] = {}

    def note(call: ActivityCall) -> None:
        ended[call.name] = world.network.total_calls

    world.host.on_activity_ended = note
    world.run()
    return range(ended["freeze_manifest"], ended["submit_job"])


def test_a_process_that_dies_between_two_activities_that_run_side_by_side_loses_nothing() -> None:
    for call in calls_beside_one_another():
        crash = Crash(call=call, after=True, down=60.0)
        trial = try_story(quiet_week(FIRST, crash))
        assert not trial.problems, str(trial)


def left_behind(execution: ExecutionMode) -> list[object]:
    world = World(draw(12), execution=execution)
    world.run()
    instances: list[object] = [
        (
            name,
            instance.status,
            instance.custom_status,
            instance.output,
            instance.generations,
            instance.longest_history,
            instance.last_updated_at,
        )
        for name, instance in world.hub.instances.items()
    ]
    return [*instances, world.network.operations, world.webhooks, world.events]


left_behind_once = functools.cache(left_behind)


@pytest.mark.parametrize("execution", get_args(ExecutionMode))
def test_a_seed_gives_one_week_whether_orchestrators_stay_in_memory_or_replay(
    execution: ExecutionMode,
) -> None:
    assert left_behind(execution) == left_behind_once("resident")
