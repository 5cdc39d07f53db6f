from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.deploy import AnswerGuard, Guards, OnlineDeploy
from orchestrations.contracts.rollouts import AnswerMeasurement, EndpointTraffic
from orchestrations.rollout.answer_guards import guards_of, judge_answers
from orchestrations.rollout.decisions import Broken, Passed, Verdict, Wait

MIRROR = {"mirror": 20, "bake_minutes": 10}
CANARY = {"traffic": 10, "bake_minutes": 10}
FULL = {"traffic": 100, "bake_minutes": 10}
LIVE = EndpointTraffic(traffic={"model-1": 100})
SHARE = AnswerGuard(metric="share", field="label", value="7", max=0.5, max_change=0.1)
MEAN = AnswerGuard(metric="mean", field="price", max_change=1)
AGREEMENT = AnswerGuard(metric="agreement", field="label", id="request", min=0.9)
ACCURACY = AnswerGuard(metric="accuracy", field="label", id="request", labels="feedback/", min=0.9)
GUARDS = Guards(error_rate=0.1, minimum_requests=20)


def deploy(*steps: dict[str, Any], answers: list[AnswerGuard]) -> OnlineDeploy:
    return OnlineDeploy.model_validate(
        {
            "endpoint": "digits",
            "instance_type": "Standard_DS3_v2",
            "steps": steps,
            "guards": {"answers": [each.model_dump() for each in answers]},
        }
    )


def measured(**changes: Any) -> AnswerMeasurement:
    document = {"answers": 100, "without": 0, "value": 0.4, "compared": 100, "reference": 0.4}
    return AnswerMeasurement.model_validate(document | changes)


def judge(guard: AnswerGuard, **changes: Any) -> Verdict:
    return judge_answers(GUARDS, [guard], [measured(**changes)])


def test_what_has_no_current_answers_is_judged_by_its_own_limits_alone() -> None:
    given = deploy(MIRROR, CANARY, FULL, answers=[SHARE, MEAN, AGREEMENT, ACCURACY])
    alone = SHARE.model_copy(update={"max_change": None})
    mirror, canary, full = given.steps
    assert guards_of(given, mirror, LIVE) == [SHARE, MEAN, AGREEMENT, ACCURACY]
    assert guards_of(given, canary, LIVE) == [SHARE, MEAN, ACCURACY]
    assert guards_of(given, full, LIVE) == [alone, ACCURACY]
    assert guards_of(given, full, EndpointTraffic()) == [alone, ACCURACY], "the first model"


@given(
    answers=st.integers(0, 50),
    compared=st.integers(0, 50),
    value=st.floats(0, 1),
    reference=st.floats(0, 1),
)
def test_a_guard_passes_only_with_evidence_and_within_its_limits(
    answers: int, compared: int, value: float, reference: float
) -> None:
    verdict = judge(SHARE, answers=answers, compared=compared, value=value, reference=reference)
    known = answers >= 20 and compared >= 20
    bad = known and (value > 0.5 or abs(value - reference) > 0.1)
    assert isinstance(verdict, Wait) == (not known)
    assert isinstance(verdict, Broken) == bad
    assert isinstance(verdict, Passed) == (known and not bad)


@pytest.mark.parametrize(
    ("guard", "found", "reason"),
    [
        (
            AGREEMENT,
            {"value": 0.8, "compared": 50, "reference": None},
            "deploy.guards.answers: agreement on label is 0.8 of 50 answers; min is 0.9",
        ),
        (
            SHARE,
            {"value": 0.45, "reference": 0.2},
            (
                "deploy.guards.answers: share of label=7 is 0.45 of 100 answers, "
                "and 0.2 of 100 of the current model; max_change is 0.1"
            ),
        ),
        (
            MEAN,
            {"without": 60},
            (
                "60.0% of 100 answers have no 'price' to measure; deploy.guards.answers: "
                "mean of price, and deploy.guards.error_rate is 10.0%"
            ),
        ),
    ],
)
def test_reasons_name_the_guard_and_its_numbers(
    guard: AnswerGuard, found: dict[str, Any], reason: str
) -> None:
    assert judge(guard, **found) == Broken(reason)


def test_a_broken_guard_counts_before_one_that_waits() -> None:
    waits, breaks = measured(answers=1), measured(value=0.9)
    for found in ([waits, breaks], [breaks, waits]):
        assert isinstance(judge_answers(GUARDS, [SHARE, SHARE], found), Broken)
    assert judge_answers(GUARDS, [], []) == Passed()


def test_without_a_minimum_a_step_without_answers_passes() -> None:
    found = measured(answers=0, value=None, compared=0, reference=None)
    assert judge_answers(Guards(minimum_requests=0), [SHARE], [found]) == Passed()


@pytest.mark.parametrize(
    "given",
    [
        {"metric": "mean", "field": "price"},
        {"metric": "mean", "field": "price", "min": 1, "value": "7"},
        {"metric": "mean", "field": "price", "min": 1, "id": "request"},
        {"metric": "share", "field": "label", "max": 1},
        {"metric": "agreement", "field": "label", "min": 0.9},
        {"metric": "agreement", "field": "label", "id": "request", "max_change": 0.1},
        {"metric": "accuracy", "field": "label", "id": "request", "min": 0.9},
        {"metric": "median", "field": "price", "min": 1},
    ],
)
def test_a_guard_that_lacks_what_its_metric_needs_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AnswerGuard.model_validate(given)


@pytest.mark.parametrize(
    ("steps", "guard"), [([CANARY, FULL], AGREEMENT), ([FULL], MEAN), ([FULL], SHARE)]
)
def test_a_guard_that_no_step_is_judged_by_is_refused(
    steps: list[dict[str, Any]], guard: AnswerGuard
) -> None:
    with pytest.raises(ValidationError, match="there is none"):
        deploy(*steps, answers=[guard])
