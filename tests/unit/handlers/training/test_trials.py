from __future__ import annotations

from typing import Any

import pytest

from handlers.training.job_outputs import find_trial
from tests.unit.handlers.azure_ml_fake import World, a_job, make_world

RUN = "digits-0123456789abcdef-1"


@pytest.mark.parametrize(
    ("properties", "children", "trial"),
    [
        ({"best_child_run_id": f"{RUN}_3"}, [], f"{RUN}_3"),
        ({}, [a_job(f"{RUN}_0", "Canceled"), a_job(f"{RUN}_1", "Failed")], f"{RUN}_1"),
        (None, [], None),
    ],
)
def test_the_best_trial_of_a_sweep_or_one_that_failed(
    properties: Any, children: list[Any], trial: str | None
) -> None:
    world = make_world()
    job = a_job(RUN, "Completed", type="sweep", properties=properties)
    world.workspace.jobs.store[RUN,] = job
    world.workspace.jobs.children[RUN] = children
    assert find_trial(world.clients, RUN) == trial


def test_other_jobs_and_deleted_ones_have_none(world: World) -> None:
    assert find_trial(world.clients, RUN) is None
    world.workspace.jobs.store[RUN,] = a_job(RUN, "Completed")
    assert find_trial(world.clients, RUN) is None
