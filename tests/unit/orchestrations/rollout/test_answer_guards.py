from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrations.configuration.deploy import AnswerGuard, Guards, OnlineDeploy
from orchestrations.contracts.rollouts import AnswerMeasurement, EndpointTraffic
from orchestrations.rollout import answer_guards
from orchestrations.rollout.answer_guards import (
    Measuring,
    guards_of,
    judge_answers,
    parse_collected,
    parse_line,
)
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
SINCE = datetime(2026, 11, 22, 10, 0, 0, 500_000, tzinfo=UTC)
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1)
LABELS = st.sampled_from(["0", "1", "7"])


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


def guard(metric: str, **given: Any) -> AnswerGuard:
    document = {"metric": metric, "field": "label", "min": 0.5, **given}
    return AnswerGuard.model_validate(document)


def measure(
    of: AnswerGuard, new: list[dict[str, Any]], others: list[dict[str, Any]]
) -> AnswerMeasurement:
    measuring = Measuring(of)
    for row in new:
        measuring.add(row)
    for row in others:
        measuring.compare(row)
    return measuring.result()


def line(data: Any, *, at: datetime = SINCE) -> bytes:
    event = {"specversion": "1.0", "time": f"{at:%Y-%m-%dT%H:%M:%SZ}", "data": data}
    return json.dumps(event).encode()


@given(NUMBERS, NUMBERS)
def test_a_mean_is_measured_of_both_models(new: list[float], current: list[float]) -> None:
    found = measure(
        guard("mean", field="price", max_change=1),
        [{"price": value} for value in new],
        [{"price": value} for value in current],
    )
    assert (found.answers, found.without, found.compared) == (len(new), 0, len(current))
    assert found.value == pytest.approx(mean(new), abs=1e-3)
    assert found.reference == pytest.approx(mean(current), abs=1e-3)


@given(st.lists(LABELS, min_size=1))
def test_a_share_counts_one_value_as_number_or_text(labels: list[str]) -> None:
    rows = [{"label": label} for label in labels]
    for value in ("7", 7):
        found = measure(guard("share", value=value), rows, [])
        assert found.value == pytest.approx(labels.count("7") / len(labels))
    numbers = [{"label": int(label)} for label in labels]
    assert measure(guard("share", value=7), numbers, []) == found


@given(st.dictionaries(st.integers(0, 50), LABELS), st.dictionaries(st.integers(0, 50), LABELS))
def test_agreement_is_of_the_requests_that_both_answered(
    new: dict[int, str], current: dict[int, str]
) -> None:
    found = measure(
        AGREEMENT,
        [{"request": name, "label": label} for name, label in new.items()],
        [{"request": str(name), "label": label} for name, label in current.items()],
    )
    both = new.keys() & current.keys()
    assert found.compared == len(both)
    expected = sum(new[name] == current[name] for name in both) / len(both) if both else None
    assert found.value == expected


def test_a_request_that_was_answered_twice_counts_once() -> None:
    rows = [{"request": 1, "label": "7"}]
    found = measure(AGREEMENT, rows, rows * 3)
    assert (found.compared, found.value) == (1, 1.0)


@pytest.mark.parametrize("value", [None, "12", True, float("nan"), float("inf"), [1]])
def test_answers_without_a_number_have_no_mean(value: Any) -> None:
    found = measure(guard("mean"), [{"label": 2}, {"label": value}, {}], [])
    assert (found.answers, found.without, found.value) == (3, 2, 2.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_guards, "MOST_REQUESTS", 2)
    rows = [{"request": name, "label": "7"} for name in range(5)]
    found = measure(AGREEMENT, rows, rows)
    assert (found.answers, found.compared) == (5, 2)


def test_a_line_has_the_rows_of_one_request_or_of_several() -> None:
    rows = [{"label": "7"}, {"label": "1"}]
    assert list(parse_collected(line(rows), since=SINCE)) == rows
    assert list(parse_collected(line(rows[0]), since=SINCE)) == rows[:1]
    assert not list(parse_collected(line([3.5, "text"]), since=SINCE))
    assert not list(parse_collected(line("https://a.large.payload"), since=SINCE))


def test_a_line_of_the_step_before_has_no_rows() -> None:
    earlier = line([{"label": "7"}], at=SINCE - timedelta(seconds=1))
    assert not list(parse_collected(earlier, since=SINCE))


@given(
    st.binary()
    | st.text().map(str.encode)
    | st.recursive(
        st.none() | st.text() | st.floats(),
        lambda it: st.lists(it) | st.dictionaries(st.sampled_from(["time", "data", "label"]), it),
    ).map(lambda document: json.dumps(document).encode())
)
def test_any_other_line_has_no_rows_and_raises_nothing(content: bytes) -> None:
    assert not list(parse_collected(content, since=SINCE))
    assert isinstance(parse_line(content), dict)
