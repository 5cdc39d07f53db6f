from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations import errors
from orchestrations.configuration.approve import Approval, ApprovedStep
from orchestrations.configuration.deploy import BatchDeploy, Guards, OnlineDeploy, RolloutStep
from orchestrations.contracts.rollouts import EndpointTraffic, Observation, RolloutState
from orchestrations.rollout.decisions import (
    FAULTS,
    Broken,
    Passed,
    Wait,
    follow_up,
    judge_step,
    kind_of,
    main_deployment,
    poll_delay,
    questions_before,
    traffic_of,
    traffic_without,
)

NEW = "model-2"
STEPS = [
    RolloutStep(mirror=20, bake_minutes=10),
    RolloutStep(traffic=10, bake_minutes=10),
    RolloutStep(traffic=100, bake_minutes=10),
]
DEPLOY = OnlineDeploy(endpoint="digits", instance_type="Standard_DS3_v2", steps=STEPS)
LIVE = EndpointTraffic(traffic={"model-1": 100})


@st.composite
def live_traffic(draw: st.DrawFn) -> EndpointTraffic:
    """Shares of one to six deployments that add up to 100."""
    cuts = draw(st.lists(st.integers(1, 99), unique=True, max_size=5).map(sorted))
    edges = [0, *cuts, 100]
    shares = [after - before for before, after in pairwise(edges)]
    return EndpointTraffic(traffic={f"blue-{n}": share for n, share in enumerate(shares)})


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        (STEPS, [[], ["rollout"], ["full-traffic"]]),
        (STEPS[-1:], [["rollout", "full-traffic"]]),
    ],
)
def test_people_are_asked_before_live_traffic_and_before_all_of_it(
    steps: list[RolloutStep], asked: list[list[str]]
) -> None:
    rules = [Approval(before=each) for each in get_args(ApprovedStep)]
    numbers = range(len(steps) + 1)
    found = [[each.before for each in questions_before(rules, steps, n)] for n in numbers]
    assert found == [*asked, []]


@given(live_traffic(), st.integers(1, 100))
def test_traffic_adds_up_and_the_new_deployment_gets_its_share(
    previous: EndpointTraffic, percent: int
) -> None:
    made = traffic_of(RolloutStep(traffic=percent, bake_minutes=1), NEW, previous)
    assert made.traffic[NEW] == percent
    assert sum(made.traffic.values()) == 100
    assert all(share > 0 for share in made.traffic.values())
    for name, share in previous.traffic.items():
        assert abs(made.traffic.get(name, 0) - share * (100 - percent) / 100) <= 1


@given(live_traffic())
def test_a_mirror_step_leaves_live_traffic_alone(previous: EndpointTraffic) -> None:
    made = traffic_of(STEPS[0], NEW, previous)
    assert made == EndpointTraffic(traffic=previous.traffic, mirror={NEW: 20})


@given(live_traffic(), st.data())
def test_what_a_rollback_sets_never_names_the_new_deployment(
    found: EndpointTraffic, data: st.DataObject
) -> None:
    removed = data.draw(st.sampled_from(sorted(found.traffic)))
    left = traffic_without(found, removed)
    assert removed not in left.traffic
    assert sum(left.traffic.values()) == (100 if len(found.traffic) > 1 else 0)


GUARDS = Guards(error_rate=0.02, latency_p95_ms=400, minimum_requests=10)
GUARDED = DEPLOY.model_copy(update={"guards": GUARDS})


@given(
    requests=st.integers(0, 10_000),
    failed=st.floats(0, 1),
    latency=st.none() | st.floats(0, 10_000),
    minutes=st.floats(0, 30),
)
def test_a_step_passes_only_with_evidence_within_the_guards_and_after_its_time(
    requests: int, failed: float, latency: float | None, minutes: float
) -> None:
    failures = int(requests * failed)
    observed = Observation(requests=requests, failures=failures, latency_p95_ms=latency)
    verdict = judge_step(GUARDED, STEPS[1], observed, elapsed=timedelta(minutes=minutes))
    known = requests >= 10
    bad = known and (failures / requests > 0.02 or (latency is not None and latency > 400))
    assert isinstance(verdict, Broken) == bad
    assert isinstance(verdict, Passed) == (known and not bad and minutes >= 10)
    assert isinstance(verdict, Wait) == (not bad and (not known or minutes < 10))


WATCHED = BatchDeploy.model_validate(
    {
        "kind": "batch",
        "endpoint": "digits",
        "compute": "cpu",
        "bake_minutes": 10,
        "guards": {"failed_jobs": 0.25, "minimum_jobs": 4},
    }
)


@given(jobs=st.integers(0, 20), failed=st.floats(0, 1), minutes=st.floats(0, 30))
def test_jobs_of_a_batch_deployment_are_judged_as_requests_are(
    jobs: int, failed: float, minutes: float
) -> None:
    failures = int(jobs * failed)
    observed = Observation(requests=jobs, failures=failures)
    elapsed = timedelta(minutes=minutes)
    verdict = judge_step(WATCHED, WATCHED.steps[0], observed, elapsed=elapsed)
    known = jobs >= 4
    bad = known and failures / jobs > 0.25
    assert isinstance(verdict, Broken) == bad
    assert isinstance(verdict, Passed) == (known and not bad and minutes >= 10)
    unwatched = WATCHED.model_copy(update={"bake_minutes": 0})
    passed = judge_step(unwatched, unwatched.steps[0], observed, elapsed=elapsed)
    assert passed == Passed(), "its smoke job has judged it"


def test_without_a_minimum_a_step_without_requests_passes() -> None:
    deploy = DEPLOY.model_copy(update={"guards": Guards(minimum_requests=0)})
    elapsed = timedelta(minutes=10)
    assert judge_step(deploy, STEPS[1], Observation(), elapsed=elapsed) == Passed()


def test_reasons_name_the_setting() -> None:
    observed = Observation(requests=50, failures=2, latency_p95_ms=10)
    verdict = judge_step(GUARDED, STEPS[1], observed, elapsed=timedelta())
    assert isinstance(verdict, Broken)
    assert verdict.reason == "4.0% of 50 requests failed; deploy.guards.error_rate is 2.0%"


@given(st.floats(0, 7 * 24 * 60), st.floats(0, 30 * 24 * 60))
def test_steps_are_polled_neither_too_often_nor_too_seldom(minutes: float, waited: float) -> None:
    step = RolloutStep(traffic=10, bake_minutes=minutes)
    delay = poll_delay(step, elapsed=timedelta(minutes=waited)).total_seconds()
    assert 5 <= delay <= (300 if waited < minutes - 1e-6 else 900)


def test_the_main_deployment_has_most_traffic() -> None:
    assert main_deployment(EndpointTraffic(traffic={"a": 30, "b": 70})) == "b"
    assert main_deployment(EndpointTraffic()) is None


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [{"traffic": 50, "bake_minutes": 1}],
        [{"traffic": 50, "bake_minutes": 1}, {"traffic": 10, "bake_minutes": 1}],
        [{"traffic": 100, "bake_minutes": 1}, {"mirror": 10, "bake_minutes": 1}],
        [{"traffic": 100, "mirror": 10, "bake_minutes": 1}],
        [{"bake_minutes": 1}],
        [{"mirror": 51, "bake_minutes": 1}, {"traffic": 100, "bake_minutes": 1}],
    ],
)
def test_steps_that_do_not_lead_to_all_traffic_are_refused(steps: list[object]) -> None:
    with pytest.raises(ValidationError):
        OnlineDeploy.model_validate(
            {"endpoint": "digits", "instance_type": "Standard_DS3_v2", "steps": steps}
        )


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
