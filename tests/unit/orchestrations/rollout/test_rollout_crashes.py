"""The host dies in every activity of a rollout, before and after its effect, and restarts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from orchestrations.configuration.deploy import OnlineDeploy
from orchestrations.contracts.rollouts import ChampionChange, Observation
from orchestrations.errors import DeploymentRejected
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.rollout.simulated_endpoint import BATCH, Endpoint, batch_endpoint

ROLLED_BACK = ChampionChange(verb="rollback", version="3", at=START, by="ada", reason="why")
SMOKE_FAILED = DeploymentRejected("smoke job smoke-digits-live-model-2 is failed")
WATCHED = BATCH.model_copy(update={"bake_minutes": 1})
SHORT_STEPS = OnlineDeploy.model_validate(
    {
        "endpoint": "digits-live",
        "instance_type": "Standard_DS3_v2",
        "steps": [{"mirror": 20, "bake_minutes": 0.1}, {"traffic": 100, "bake_minutes": 0}],
        "guards": {"answers": [{"metric": "mean", "field": "price", "max_change": 0.1}]},
        "keep_previous_hours": 1,
    }
)


BATCH_ENDPOINT = functools.partial(batch_endpoint, smoke_seconds=20, ready_after=5)
ONLINE_ENDPOINT = functools.partial(Endpoint, deploy=SHORT_STEPS, ready_after=5)


def failing_when_it_gets_traffic(endpoint: Endpoint) -> Observation:
    return Observation(requests=100, failures=50 if endpoint.set_to else 0)


def rolled_back_by_a_person() -> Endpoint:
    endpoint = BATCH_ENDPOINT()
    endpoint.decide(3600, "rollback", 1)
    return endpoint


def result_of(endpoint: Endpoint) -> dict[str, Any]:
    """The effects of a rollout. Repeated effects count once."""
    status = endpoint.roll_out()
    traffic: list[Any] = []
    for _, each in endpoint.set_to:
        if each not in traffic[-1:]:
            traffic.append(each)
    return {
        "state": status.state,
        "reason": status.reason,
        "traffic": traffic,
        "deployments": endpoint.deployments,
        "notified": list(dict.fromkeys(endpoint.notified)),
        "champion": endpoint.champion_changes[:1],
        "outcomes": {(each.outcome, each.serving) for each in endpoint.outcomes},
    }


@pytest.mark.parametrize("after_its_effect", [False, True])
@pytest.mark.parametrize(
    ("begin", "state"),
    [
        (BATCH_ENDPOINT, "finished"),
        (
            functools.partial(BATCH_ENDPOINT, deploy=WATCHED, observe=failing_when_it_gets_traffic),
            "rolled_back",
        ),
        (
            functools.partial(BATCH_ENDPOINT, refuse={"test_deployment": SMOKE_FAILED}),
            "rolled_back",
        ),
        (rolled_back_by_a_person, "rolled_back"),
        (ONLINE_ENDPOINT, "finished"),
        (functools.partial(ONLINE_ENDPOINT, at_once=True, champion=ROLLED_BACK), "finished"),
        (
            functools.partial(ONLINE_ENDPOINT, observe=failing_when_it_gets_traffic),
            "rolled_back",
        ),
    ],
)
def test_a_rollout_ends_as_it_would_have_wherever_the_host_dies(
    begin: Callable[[], Endpoint], state: str, *, after_its_effect: bool
) -> None:
    undisturbed = begin()
    expected = result_of(undisturbed)
    assert expected["state"] == state
    count = undisturbed.driver.activities_run
    assert count >= 8
    for number in range(1, count + 1):
        endpoint = begin()
        endpoint.driver.crash_at(number, after_its_effect=after_its_effect)
        assert result_of(endpoint) == expected, f"the host died in activity {number}"
        assert endpoint.driver.activities_run > number
