from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.jobs.resolution import tensorflow_tasks
from localazure.machinelearning.pipelines.steps import arm_distribution


@pytest.mark.parametrize(
    ("step", "tasks"),
    [
        ({"distribution_type": "TensorFlow", "worker_count": 2}, ("worker",) * 2),
        ({"type": "tensorflow", "parameter_server_count": 1}, ("worker",) * 3 + ("ps",)),
        ({"distribution_type": "PyTorch", "process_count_per_instance": 2}, ()),
        (None, ()),
    ],
)
def test_a_step_has_the_tasks_of_its_distribution(
    step: dict[str, Any] | None, tasks: tuple[str, ...]
) -> None:
    job = {"distribution": arm_distribution(step), "resources": {"instanceCount": 3}}
    assert tensorflow_tasks(job) == tasks
