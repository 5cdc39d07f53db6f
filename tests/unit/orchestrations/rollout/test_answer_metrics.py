from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrations.configuration.deploy import AnswerGuard
from orchestrations.contracts.rollouts import AnswerMeasurement
from orchestrations.rollout import answer_metrics
from orchestrations.rollout.answer_metrics import Measuring, parse_collected, parse_line

SINCE = datetime(2026, 11, 22, 10, 0, 0, 500_000, tzinfo=UTC)
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1)
LABELS = st.sampled_from(["0", "1", "7"])


def guard(metric: str, **given: Any) -> AnswerGuard:
    document = {"metric": metric, "field": "label", "min": 0.5, **given}
    return AnswerGuard.model_validate(document)


AGREEMENT = guard("agreement", id="request")


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
    monkeypatch.setattr(answer_metrics, "MOST_REQUESTS", 2)
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
