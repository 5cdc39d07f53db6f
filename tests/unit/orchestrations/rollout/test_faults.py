from __future__ import annotations

from typing import get_args

import pytest

from orchestrations import errors
from orchestrations.contracts.rollouts import RolloutState
from orchestrations.rollout.faults import FAULTS, follow_up, kind_of

BEFORE_LIVE = ("waiting", "deploying", "testing", "baking")
ALL_ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.LandfallError)
]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.DeploymentRejected, "verdict"),
        (errors.DeadlineExceeded, "verdict"),
        (errors.RolloutImpossible, "impossible"),
        (errors.JobRejected, "impossible"),
        (errors.PermanentError, "impossible"),
        (errors.TransientError, "unknown"),
        (errors.JobFailed, "unknown"),
        (errors.OfAnotherRelease, "unknown"),
        (errors.InvalidSetting, "unknown"),
        (errors.InvalidRequest, "unknown"),
    ],
)
def test_the_kind_of_an_error_follows_from_its_type(
    error: type[errors.LandfallError], kind: str
) -> None:
    assert kind_of(error("why")) == kind


@pytest.mark.parametrize("error", ALL_ERRORS)
@pytest.mark.parametrize("state", get_args(RolloutState))
def test_every_error_has_a_follow_up_in_every_state(
    error: type[errors.LandfallError], state: RolloutState
) -> None:
    found, kind = follow_up(state, error("why")), kind_of(error("why"))
    if kind == "unknown":
        assert found == "hold", "an outage is never a verdict"
    elif state in BEFORE_LIVE:
        assert found == {"verdict": "roll back", "impossible": "fail"}[kind]
    else:
        assert found == ("give up" if state == "rolling_back" else "hold")


def test_only_a_verdict_takes_a_model_back() -> None:
    verdicts = {each for each in ALL_ERRORS if follow_up("baking", each("why")) == "roll back"}
    assert verdicts == {each for each, kind in FAULTS.items() if kind == "verdict"}
