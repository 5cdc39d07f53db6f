from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness import (
    Bench,
    Sample,
    Skipped,
    median_ratio,
    number,
    percentile,
    table,
    to_text,
)

FACTS = {
    "cores": 2,
    "load_average_1_min": 0.5,
    "system": "Linux",
    "architecture": "x86_64",
    "python": "3.11.7",
    "packages": {"aiohttp": "3"},
}
POSITIVE = st.floats(min_value=1e-6, max_value=1e9)


def bench(said: list[str]) -> Bench:
    return Bench("example", is_quick=False, say=said.append)


def test_contenders_take_turns_round_by_round() -> None:
    order: list[str] = []

    def turn(name: str) -> Sample:
        order.append(name)
        return {"ms": float(len(order))}

    said: list[str] = []
    bench(said).compare({name: partial(turn, name) for name in "ab"}, 3)
    assert order == ["a", "b"] * 3
    assert said[0] == "example: round 1 of 3, a"


def test_the_ratio_is_the_median_of_the_rounds_not_the_ratio_of_medians() -> None:
    lines = table({"ours": [{"x": 1.0}, {"x": 10.0}, {"x": 9.0}], "theirs": [{"x": 2.0}] * 3})
    assert [line.ratio for line in lines] == [None, 4.5]
    drifting = table(
        {
            "ours": [{"x": 1.0}, {"x": 100.0}, {"x": 10.0}],
            "theirs": [{"x": 2.0}, {"x": 50.0}, {"x": 40.0}],
        }
    )
    assert drifting[1].ratio == 0.5  # of 0.5, 2 and 0.25; the medians' would be 10 / 40


def test_who_is_skipped_is_noted_with_the_reason_and_not_in_the_table() -> None:
    said: list[str] = []
    one = bench(said)

    def missing() -> Sample:
        raise Skipped("it is not installed")

    one.compare({"ours": lambda: {"x": 1.0}, "peer": missing}, 2)
    assert one.result.notes == ["peer skipped: it is not installed"]
    assert {line.contender for line in one.result.lines} == {"ours"}
    assert sum("peer skipped" in line for line in said) == 1


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1))
def test_a_contender_that_is_twice_as_slow_has_half_the_ratio(
    pairs: list[tuple[float, float]],
) -> None:
    ours, theirs = zip(*pairs, strict=True)
    ratio = median_ratio(ours, theirs)
    assert ratio is not None
    slower = median_ratio(ours, [2 * value for value in theirs])
    assert slower == pytest.approx(ratio / 2)


@given(st.lists(POSITIVE, min_size=1), st.integers(1, 100))
def test_so_many_percent_do_not_exceed_a_percentile(values: list[float], percent: int) -> None:
    found = percentile(values, percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


def test_numbers_as_they_are_read() -> None:
    assert [number(value) for value in (0.0, 0.01234, 1.0, 12.34, 123.4, 12345.6)] == [
        "0",
        "0.0123",
        "1.00",
        "12.3",
        "123",
        "12,346",
    ]


def test_results_as_text() -> None:
    said: list[str] = []
    one = bench(said)
    one.compare({"ours": lambda: {"ms": 2.0}, "theirs": lambda: {"ms": 4.0}}, 1)
    one.note("a remark")
    text = to_text(FACTS, [one.result])
    assert "2 cores" in text
    assert "| ms | theirs | 4.00 | 4.00 | 4.00 | 0.50 |" in text
    assert text.endswith("- a remark")
