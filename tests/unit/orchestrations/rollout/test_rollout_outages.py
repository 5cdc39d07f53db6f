"""A rollout in outages, and at an endpoint that is gone: it waits, alerts once, or ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrations.configuration.deploy import OnlineDeploy
from orchestrations.contracts.rollouts import (
    EndpointTraffic,
    Observation,
    RolloutStatus,
)
from orchestrations.errors import LandfallError, RolloutImpossible
from orchestrations.rollout.decisions import BEFORE_STEPS
from tests.unit.orchestrations.driver import START
from tests.unit.orchestrations.rollout.simulated_endpoint import (
    DEPLOY,
    ID,
    NEW,
    Endpoint,
    batch_endpoint,
)

BEFORE = EndpointTraffic(traffic={"model-1": 100})
AFTER = EndpointTraffic(traffic={NEW: 100})
HOUR = 3600.0
DAY = 24 * HOUR
# When the simulated rollout bakes its first step, and when it is live.
BAKING, LIVE = 600.0, 4 * HOUR
ANSWERING = OnlineDeploy.model_validate(
    {
        **DEPLOY.model_dump(),
        "guards": {"answers": [{"metric": "mean", "field": "price", "max_change": 0.1}]},
    }
)
ACTIVITIES = [
    ("claim_endpoint", 0.0),
    ("ensure_endpoint", 0.0),
    ("ensure_deployment", 0.0),
    ("test_deployment", 0.0),
    ("set_traffic", 0.0),
    ("read_directions", BAKING),
    ("observe_rollout", BAKING),
    ("measure_answers", BAKING),
    ("publish_notification", 0.0),
    ("record_rollout", 0.0),
    ("delete_deployments", LIVE),
    ("release_endpoint", LIVE),
]


def endpoint_with(**given: object) -> Endpoint:
    return Endpoint(deploy=ANSWERING, **given)  # pyright: ignore[reportArgumentType] - fields of Endpoint


@pytest.mark.parametrize("lasts", [300.0, 6 * HOUR])
@pytest.mark.parametrize(("activity", "begins"), ACTIVITIES)
def test_an_outage_never_takes_a_healthy_model_back(
    activity: str, begins: float, lasts: float
) -> None:
    endpoint = endpoint_with(outages={activity: (begins, begins + lasts)})
    status = endpoint.roll_out()
    assert (status.state, status.unknown) == ("finished", None)
    assert endpoint.traffic == AFTER
    assert list(dict.fromkeys(endpoint.notified)) == ["deploying", "deployed"]
    assert {each.outcome for each in endpoint.outcomes} == {"live"}


def test_while_nothing_is_known_the_traffic_stays_and_operators_are_alerted_once() -> None:
    endpoint = Endpoint(outages={"observe_rollout": (BAKING, BAKING + 3 * DAY)})
    endpoint.start()
    seen: list[EndpointTraffic] = []
    for hour in range(1, 72):
        endpoint.driver.at(BAKING + hour * HOUR, lambda: seen.append(endpoint.traffic))
    endpoint.driver.run()
    mirrored = EndpointTraffic(traffic={"model-1": 100}, mirror={NEW: 20})
    assert seen == [mirrored] * 71
    (alert,) = endpoint.alerts
    assert timedelta(minutes=30) <= alert.at - START - timedelta(seconds=BAKING)
    assert alert.at - START <= timedelta(seconds=BAKING, hours=1, minutes=5)
    assert alert.rollout == ID
    assert "observe_rollout is unreachable" in alert.message
    shown = [
        RolloutStatus.from_dict(each).unknown for each in endpoint.driver.instances[ID].statuses
    ]
    assert any(each is not None and "unreachable" in each.what for each in shown)


def test_a_second_outage_is_told_again() -> None:
    endpoint = Endpoint(observe=lambda _: Observation(), outages={})
    endpoint.outages["observe_rollout"] = (BAKING, BAKING + 2 * HOUR)
    endpoint.driver.at(
        12 * HOUR, lambda: endpoint.outages.update(observe_rollout=(12 * HOUR, 14 * HOUR))
    )
    for step in range(3):
        endpoint.decide((24 + step) * HOUR, "promote", step)
    assert endpoint.roll_out().state == "finished"
    assert len({each.alert_id for each in endpoint.alerts}) == len(endpoint.alerts) == 2


def test_an_alert_that_cannot_be_sent_is_sent_later() -> None:
    outage = (BAKING, BAKING + 6 * HOUR)
    alerts_too = (BAKING, BAKING + 3 * HOUR)
    endpoint = Endpoint(outages={"observe_rollout": outage, "alert_rollout_held": alerts_too})
    assert endpoint.roll_out().state == "finished"
    assert len(endpoint.alerts) == 1


@pytest.mark.parametrize(("verb", "state"), [("promote", "finished"), ("rollback", "rolled_back")])
def test_a_person_decides_while_the_metrics_cannot_be_read(verb: str, state: str) -> None:
    endpoint = Endpoint(outages={"observe_rollout": (BAKING, BAKING + 30 * DAY)})
    for step in range(3):
        endpoint.decide(BAKING + (step + 1) * HOUR, verb, step)
    assert endpoint.roll_out().state == state
    assert endpoint.set_to[1][0] - (BAKING + HOUR) < 60, "the event woke it up"
    assert endpoint.traffic == (AFTER if verb == "promote" else BEFORE)


def test_a_person_rolls_back_while_another_rollout_has_the_endpoint() -> None:
    endpoint = Endpoint(held_until=30 * DAY)
    endpoint.decide(HOUR, "rollback", 0)
    status = endpoint.roll_out()
    assert (status.state, status.reason) == ("rolled_back", "rolled back by ada: because")
    assert endpoint.calls[-1][0] < HOUR + 60
    assert endpoint.set_to == []


@pytest.mark.parametrize(
    ("make", "last"),
    [
        pytest.param(Endpoint, ["publish_notification"], id="deployment"),
        pytest.param(
            lambda: batch_endpoint(ready_after=0),
            ["ensure_deployment", "read_directions"],
            id="smoke job",
        ),
    ],
)
def test_a_host_that_is_down_before_something_is_made_does_not_use_up_its_time(
    make: Callable[[], Endpoint], last: list[str]
) -> None:
    """Found by the simulation: seeds 240, 272 and 2447."""
    endpoint, down = make(), [3 * HOUR]

    def latency() -> float:
        called = [name for _, name in endpoint.calls]
        return down.pop() if called[-len(last) :] == last and down else 0.01

    endpoint.driver.latency = latency
    assert endpoint.roll_out().state == "finished"
    assert not down


def test_a_long_outage_does_not_use_up_the_time_for_provisioning() -> None:
    endpoint = Endpoint(ready_after=3 * HOUR, outages={"ensure_deployment": (100, 2.9 * HOUR)})
    assert endpoint.roll_out().state == "finished"


def test_a_long_outage_does_not_use_up_the_time_of_the_smoke_job() -> None:
    endpoint = batch_endpoint(smoke_seconds=3 * HOUR)
    endpoint.outages["test_deployment"] = (100, 2.9 * HOUR)
    assert endpoint.roll_out().state == "finished"


REASON = "endpoint digits-live was deleted"
GONE = RolloutImpossible(REASON)


@pytest.mark.parametrize("make", [Endpoint, batch_endpoint])
@pytest.mark.parametrize(
    "refused",
    [
        {"ensure_endpoint": GONE},
        {"ensure_deployment": GONE, "set_traffic": GONE},
        {"test_deployment": GONE, "set_traffic": GONE},
        {"set_traffic": GONE},
        {"observe_rollout": GONE, "set_traffic": GONE},
    ],
    ids="+".join,
)
def test_an_endpoint_that_is_gone_ends_the_rollout_and_people_are_told_once(
    make: Callable[..., Endpoint], refused: dict[str, LandfallError]
) -> None:
    endpoint = make()
    if "observe_rollout" in refused:
        # The traffic was set before.
        endpoint = make(deploy=endpoint.deploy.model_copy(update={"bake_minutes": 60}))
        endpoint.driver.at(BAKING + 200, lambda: endpoint.refuse.update(refused))
    else:
        endpoint.refuse.update(refused)
    status = endpoint.roll_out()
    assert status.state == "failed"
    assert REASON in (status.reason or "")
    assert endpoint.released, "later rollouts do not wait"
    assert endpoint.notified.count("failed") == 1
    assert endpoint.told[-1].status.reason == status.reason
    assert endpoint.driver.activities_run < 150
    assert endpoint.seconds < 2 * HOUR
    assert all(each.outcome == "failed" for each in endpoint.outcomes), "no verdict on the model"


def test_what_is_impossible_while_it_bakes_restores_the_traffic() -> None:
    endpoint = Endpoint()
    deleted = RolloutImpossible("deployment model-2 of endpoint digits-live was deleted")
    endpoint.driver.at(2 * HOUR, lambda: endpoint.refuse.update(observe_rollout=deleted))
    status = endpoint.roll_out()
    assert (status.state, status.reason) == ("failed", f"RolloutImpossible: {deleted}")
    assert endpoint.traffic == BEFORE
    assert [(each.outcome, each.serving) for each in endpoint.outcomes] == [("failed", "model-1")]


def test_a_rollback_to_a_deployment_that_is_gone_says_that_the_traffic_stays() -> None:
    endpoint = Endpoint(observe=lambda it: Observation(requests=100, failures=len(it.set_to) * 50))
    gone = RolloutImpossible("deployment model-1 does not exist")
    endpoint.driver.at(BAKING, lambda: endpoint.refuse.update(set_traffic=gone))
    endpoint.observe = lambda it: Observation(requests=100, failures=50 if it.refuse else 0)
    status = endpoint.roll_out()
    assert status.state == "failed"
    assert "deploy.guards.error_rate" in (status.reason or "")
    assert "could not be restored: RolloutImpossible: deployment model-1" in (status.reason or "")
    assert NEW in endpoint.deployments, "it may have traffic"
    assert endpoint.released


def test_a_refused_record_or_deletion_does_not_stop_a_live_model() -> None:
    refused = RolloutImpossible("no")
    names = ("record_rollout", "delete_deployments", "release_endpoint", "publish_notification")
    endpoint = Endpoint(refuse=dict.fromkeys(names, refused))
    endpoint.start()
    endpoint.driver.run()
    output = RolloutStatus.from_dict(endpoint.driver.instances[ID].output)
    assert output.state == "finished"
    assert endpoint.traffic == AFTER


def test_a_rollout_at_once_has_one_step_without_guards() -> None:
    endpoint = Endpoint(at_once=True, observe=lambda _: Observation(requests=100, failures=100))
    status = endpoint.roll_out()
    assert (status.state, status.at_once) == ("finished", True)
    assert [each for _, each in endpoint.set_to] == [AFTER]
    assert endpoint.set_to[0][0] < 5 * 60
    assert "observe_rollout" not in {name for _, name in endpoint.calls}
    assert "test_deployment" in {name for _, name in endpoint.calls}


def test_a_version_that_has_all_traffic_is_live_at_once() -> None:
    endpoint = Endpoint(traffic=AFTER, deployments={NEW})
    assert endpoint.roll_out().state == "finished"
    assert endpoint.set_to == []
    assert endpoint.seconds < 60
    assert endpoint.traffic == AFTER


def test_a_rollback_has_precedence_over_a_newer_model() -> None:
    # A live model would else be left with the traffic, and the previous one deleted.
    endpoint = Endpoint(superseded_at=LIVE)
    endpoint.decide(LIVE, "rollback", 3)
    assert endpoint.roll_out().state == "rolled_back"
    assert endpoint.traffic == BEFORE


def test_a_rollout_that_waits_for_days_is_cheap() -> None:
    waiting = Endpoint(observe=lambda _: Observation())
    for step in range(3):
        waiting.decide(3 * DAY + step * HOUR, "promote", step)
    assert waiting.roll_out().state == "finished"
    assert waiting.driver.activities_run < 3 * 250
    behind = Endpoint(held_until=3 * DAY)
    assert behind.roll_out().state == "finished"
    before = [name for at, name in behind.calls if at < 3 * DAY]
    assert len(before) < 3 * 250
    out = Endpoint(outages={"observe_rollout": (BAKING, BAKING + 3 * DAY)})
    assert out.roll_out().state == "finished"
    during = [name for at, name in out.calls if BAKING <= at < BAKING + 3 * DAY]
    assert len(during) < 3 * 350
    for endpoint in (waiting, behind, out):
        assert endpoint.driver.instances[ID].longest_history < 700


OUTAGES = st.dictionaries(
    st.sampled_from([name for name, _ in ACTIVITIES]),
    st.tuples(st.floats(0, 4 * HOUR), st.floats(1, 12 * HOUR)).map(lambda it: (it[0], sum(it))),
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(outages=OUTAGES, is_bad=st.booleans())
def test_whatever_fails_and_for_how_long_the_verdict_is_the_models(
    outages: dict[str, tuple[float, float]], *, is_bad: bool
) -> None:
    failures = 50 if is_bad else 0
    endpoint = Endpoint(
        outages=outages, observe=lambda _: Observation(requests=100, failures=failures)
    )
    status = endpoint.roll_out()
    assert status.state == ("rolled_back" if is_bad else "finished")
    assert endpoint.traffic == (BEFORE if is_bad else AFTER)
    for _, each in endpoint.set_to:
        assert sum(each.traffic.values()) == 100
    assert len(endpoint.alerts) <= 2 * len(outages)


def test_a_person_leaves_out_a_smoke_test_that_cannot_be_made() -> None:
    endpoint = Endpoint(outages={"test_deployment": (0, 30 * DAY)})
    endpoint.decide(HOUR, "promote", BEFORE_STEPS)
    assert endpoint.roll_out().state == "finished"
    assert [len(each.mirror) for _, each in endpoint.set_to] == [1, 0, 0], "no step was left out"
