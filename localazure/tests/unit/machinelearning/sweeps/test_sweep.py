from __future__ import annotations

from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.sweeps.early_termination import Trial
from localazure.machinelearning.sweeps.sweep import (
    SweepStep,
    best_trial,
    next_step,
    parse_sweep,
    trial_properties,
)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "jobType": "Sweep",
        "trial": {
            "command": "train --lr ${{search_space.lr}} --data ${{inputs.data}}",
            "environmentId": "azureml:torch:1",
        },
        "searchSpace": {"lr": ["choice", [[0.1, 0.2, 0.3]]]},
        "samplingAlgorithm": {"samplingAlgorithmType": "Grid"},
        "objective": {"goal": "Maximize", "primaryMetric": "accuracy"},
        "limits": {"maxTotalTrials": 10, "maxConcurrentTrials": 2, "trialTimeout": "PT1M"},
        "inputs": {"data": {"jobInputType": "uri_folder", "uri": "azureml:digits:1"}},
        **changes,
    }


SWEEP = parse_sweep("s", document())


def trial(number: int, status: JobStatus, *values: float) -> Trial:
    return Trial(name=f"s_{number}", status=status, values=values)


def test_a_grid_is_no_larger_than_its_combinations() -> None:
    assert (SWEEP.total, SWEEP.concurrent) == (3, 2)
    assert [SWEEP.draw("s", number)["lr"] for number in range(3)] == [0.1, 0.2, 0.3]


def test_trials_start_as_others_end() -> None:
    assert next_step(SWEEP, JobStatus.RUNNING, []) == SweepStep(start=(0, 1))
    trials = [trial(0, JobStatus.RUNNING), trial(1, JobStatus.QUEUED)]
    assert next_step(SWEEP, JobStatus.RUNNING, trials) == SweepStep()
    trials[0] = trial(0, JobStatus.FAILED)
    assert next_step(SWEEP, JobStatus.RUNNING, trials) == SweepStep(start=(2,))


@pytest.mark.parametrize(
    ("last", "status"),
    [(JobStatus.COMPLETED, JobStatus.COMPLETED), (JobStatus.FAILED, JobStatus.FAILED)],
)
def test_a_sweep_ends_with_its_last_trial(last: JobStatus, status: JobStatus) -> None:
    trials = [trial(0, JobStatus.FAILED), trial(1, JobStatus.CANCELED), trial(2, last)]
    assert next_step(SWEEP, JobStatus.RUNNING, trials) == SweepStep(status=status)


def test_the_best_trial_has_the_best_value_that_any_completed_one_logged() -> None:
    trials = [
        trial(0, JobStatus.COMPLETED, 0.5, 0.9, 0.1),
        trial(1, JobStatus.COMPLETED, 0.8),
        trial(2, JobStatus.CANCELED, 0.99),
    ]
    assert best_trial(SWEEP, trials) == ("s_0", 0.9)
    minimal = parse_sweep("s", document(objective={"goal": "Minimize", "primaryMetric": "loss"}))
    assert best_trial(minimal, trials) == ("s_0", 0.1)
    assert best_trial(SWEEP, [trial(0, JobStatus.COMPLETED)]) is None


def test_a_trial_is_a_command_job_with_its_values() -> None:
    properties = trial_properties("s", document(), 1, {"lr": 0.2})
    assert properties["jobType"] == "Command"
    assert properties["command"] == "train --lr 0.2 --data ${{inputs.data}}"
    assert properties["inputs"]["lr"] == {"jobInputType": "literal", "value": "0.2"}
    assert properties["inputs"]["data"]["uri"] == "azureml:digits:1"
    assert properties["limits"]["timeout"] == "PT1M"
    assert properties["tags"] == {"hyperparameters": '{"lr": 0.2}'}


def test_a_hyperparameter_that_is_not_searched_is_named() -> None:
    with pytest.raises(ArmError, match=r"search_space\.lr.*not in the search space"):
        trial_properties("s", document(), 0, {"other": 1})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"trial": {"command": "x"}}, "environmentId is missing"),
        ({"objective": {"goal": "Maximize"}}, "primaryMetric"),
        ({"samplingAlgorithm": {"samplingAlgorithmType": "Genetic"}}, "'genetic' is not known"),
        ({"limits": {"timeout": "soon"}}, r"limits\.timeout"),
    ],
)
def test_a_sweep_that_could_not_run_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ArmError, match=why):
        parse_sweep("s", document(**changes))
