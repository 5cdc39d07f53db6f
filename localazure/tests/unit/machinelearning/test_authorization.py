from __future__ import annotations

import pytest

from localazure.machinelearning.authorization import action_of, authorize
from localazure.machinelearning.errors import ArmError

WORKSPACES = "microsoft.machinelearningservices/workspaces"
SCIENTIST, OPERATOR = "AzureML Data Scientist", "AzureML Compute Operator"


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("GET", "jobs", "jobs/read"),
        ("PUT", "jobs/run-1", "jobs/write"),
        ("POST", "jobs/run-1/cancel", "jobs/cancel/action"),
        ("PUT", "data/digits/versions/1", "data/versions/write"),
        ("DELETE", "computes/cpu", "computes/delete"),
        ("POST", "datastores/landing/listSecrets", "datastores/listsecrets/action"),
        ("POST", "onlineEndpoints/e/listKeys", "onlineendpoints/listkeys/action"),
    ],
)
def test_a_request_is_an_action(method: str, path: str, action: str) -> None:
    assert action_of(method, path.split("/")) == f"{WORKSPACES}/{action}"


@pytest.mark.parametrize(
    ("roles", "action", "is_allowed"),
    [
        (None, "computes/write", True),
        ([], "jobs/read", False),
        (["Reader of something else"], "jobs/read", False),
        ([SCIENTIST], "jobs/write", True),
        ([SCIENTIST], "computes/read", True),
        ([SCIENTIST], "computes/write", False),
        ([OPERATOR], "computes/write", True),
        ([OPERATOR], "jobs/write", False),
        ([SCIENTIST, OPERATOR], "computes/write", True),
    ],
)
def test_what_roles_allow(roles: list[str] | None, action: str, *, is_allowed: bool) -> None:
    if is_allowed:
        authorize("app", roles, f"{WORKSPACES}/{action}", "/subscriptions/s")
        return
    with pytest.raises(ArmError, match=f"perform action '{WORKSPACES}/{action}'") as caught:
        authorize("app", roles, f"{WORKSPACES}/{action}", "/subscriptions/s")
    assert (caught.value.status, caught.value.code) == (403, "AuthorizationFailed")


def test_metrics_belong_to_another_provider() -> None:
    path = "onlineEndpoints/e/providers/Microsoft.Insights/metrics"
    action = action_of("GET", path.split("/"))
    assert action == "microsoft.insights/metrics/read"
    authorize("app", ["Monitoring Reader"], action, "scope")
    with pytest.raises(ArmError):
        authorize("app", [SCIENTIST, OPERATOR], action, "scope")
