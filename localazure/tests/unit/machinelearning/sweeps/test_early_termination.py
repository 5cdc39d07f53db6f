from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.jobs.states import JobStatus
from localazure.machinelearning.sweeps.early_termination import (
    Goal,
    Policy,
    PolicyKind,
    Trial,
    parse_policy,
    trials_to_end,
)


def running(*values: float) -> Trial:
    return Trial(name="", status=JobStatus.RUNNING, values=values)


def ended(*values: float) -> Trial:
    return Trial(name="", status=JobStatus.COMPLETED, values=values)


def ends(policy: Policy, goal: Goal, trials: dict[str, Trial]) -> frozenset[str]:
    return trials_to_end(policy, goal, [replace(one, name=name) for name, one in trials.items()])


def test_bandit_with_a_factor_as_in_the_documentation() -> None:
    """The best value at interval 10 is 0.8; with slack factor 0.2, the limit is 0.8 / 1.2."""
    policy = Policy(kind=PolicyKind.BANDIT, evaluation_interval=10, slack_factor=0.2)
    trials = {
        "best": ended(*[0.1] * 9, 0.8),
        "near": running(*[0.1] * 9, 0.67),
        "far": running(*[0.1] * 9, 0.66),
        "young": running(*[0.1] * 9),
    }
    assert ends(policy, Goal.MAXIMIZE, trials) == {"far"}


def test_bandit_compares_what_all_had_reached_at_that_interval() -> None:
    policy = Policy(kind=PolicyKind.BANDIT, evaluation_interval=1, slack_amount=0.1)
    trials = {"first": running(0.3, 0.5, 0.9), "second": running(0.3)}
    assert not ends(policy, Goal.MAXIMIZE, trials)
    trials["second"] = running(0.3, 0.35)
    assert ends(policy, Goal.MAXIMIZE, trials) == {"second"}


def test_bandit_minimizes() -> None:
    policy = Policy(kind=PolicyKind.BANDIT, slack_factor=0.5)
    trials = {"a": running(1.0), "b": running(1.4), "c": running(1.6)}
    assert ends(policy, Goal.MINIMIZE, trials) == {"c"}


def test_median_compares_the_best_with_the_running_averages() -> None:
    policy = Policy(kind=PolicyKind.MEDIAN)
    trials = {"a": ended(0.8, 0.8), "b": ended(0.6, 0.6), "c": running(0.1, 0.5)}
    assert ends(policy, Goal.MAXIMIZE, trials) == {"c"}
    trials["c"] = running(0.1, 0.7)
    assert not ends(policy, Goal.MAXIMIZE, trials)


def test_truncation_ends_a_part_of_the_worst_and_only_those() -> None:
    policy = Policy(kind=PolicyKind.TRUNCATION, truncation_percentage=50)
    trials = {str(number): running(float(number)) for number in range(4)}
    assert ends(policy, Goal.MAXIMIZE, trials) == {"0", "1"}
    trials["0"], trials["1"] = ended(0.0), ended(1.0)
    assert not ends(policy, Goal.MAXIMIZE, trials), "the same two are the worst"
    assert ends(policy, Goal.MINIMIZE, trials) == {"2", "3"}


def test_nothing_ends_before_the_delay() -> None:
    policy = Policy(kind=PolicyKind.BANDIT, slack_amount=0.1, delay_evaluation=3)
    worse = {"a": running(1, 1, 1), "b": running(0, 0)}
    assert not ends(policy, Goal.MAXIMIZE, worse)
    worse["b"] = running(0, 0, 0)
    assert ends(policy, Goal.MAXIMIZE, worse) == {"b"}


def test_a_policy_is_read_as_the_sdk_writes_it() -> None:
    document = {
        "policyType": "Bandit",
        "delayEvaluation": 5,
        "evaluationInterval": 2,
        "slackFactor": 0.1,
        "slackAmount": 0,
    }
    assert parse_policy(document) == Policy(
        kind=PolicyKind.BANDIT, delay_evaluation=5, evaluation_interval=2, slack_factor=0.1
    )
    assert parse_policy(None) is None


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"policyType": "Lottery"}, "known are"),
        ({"policyType": "Bandit"}, "slack_factor or slack_amount"),
        ({"policyType": "TruncationSelection", "truncationPercentage": 100}, "from 1 to 99"),
    ],
)
def test_a_policy_that_is_wrong_is_refused(document: dict[str, Any], why: str) -> None:
    with pytest.raises(ArmError, match=why):
        parse_policy(document)
