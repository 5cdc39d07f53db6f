"""What a rollout does about an error: roll back, wait until it can know, or end. Pure.

An error is one of three kinds, by its type:

- `verdict`: the model or its deployment is at fault. The rollout restores the previous traffic.
- `unknown`: it cannot be known whether the model is at fault: an outage, or something that an
  operator must correct for the app. The rollout waits, with the traffic as it is.
- `impossible`: the endpoint, the deployment or the model is gone, or Azure ML refuses a request for
  good. The rollout ends as `failed`, which says nothing about the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from orchestrations import errors
from orchestrations.contracts.rollouts import RolloutState

FaultKind = Literal["verdict", "unknown", "impossible"]
FollowUp = Literal["roll back", "fail", "give up", "hold"]

# The types that activities of a rollout raise. Every other permanent error is `impossible`, and
# every other error is `unknown`.
FAULTS: Mapping[type[errors.LandfallError], FaultKind] = {
    errors.DeploymentRejected: "verdict",
    errors.DeadlineExceeded: "verdict",
    errors.RolloutImpossible: "impossible",
    errors.JobRejected: "impossible",
    errors.TransientError: "unknown",
    # An app setting is wrong: when it is corrected, the rollout continues.
    errors.InvalidSetting: "unknown",
    # A worker of the other release continues.
    errors.OfAnotherRelease: "unknown",
    # The app calls its own activity wrongly: when it is corrected, the rollout continues.
    errors.InvalidRequest: "unknown",
}

ALERT_AFTER = timedelta(minutes=30)


def kind_of(error: errors.LandfallError) -> FaultKind:
    """The kind of an error."""
    found = FAULTS.get(type(error))
    if found is not None:
        return found
    return "impossible" if isinstance(error, errors.PermanentError) else "unknown"


def follow_up(state: RolloutState, error: errors.LandfallError) -> FollowUp:
    """What a rollout does about an error in a state.

    - `roll back`: the previous traffic is restored, because of the model.
    - `fail`: the previous traffic is restored, although nothing is known about the model.
    - `give up`: the previous traffic cannot be restored; the rollout ends, and the traffic stays.
    - `hold`: the step is tried again later.
    """
    kind = kind_of(error)
    if kind == "unknown":
        return "hold"
    if state in ("waiting", "deploying", "testing", "baking"):
        return "roll back" if kind == "verdict" else "fail"
    # A live model is not taken back, and people are told of every end.
    return "give up" if state == "rolling_back" else "hold"
