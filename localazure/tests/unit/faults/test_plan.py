from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localazure.errors import ConfigurationError
from localazure.faults.injector import FILE, Injector
from localazure.faults.plan import (
    FAULTS,
    OF_DELIVERIES,
    OF_MESSAGES,
    OF_REQUESTS,
    Fault,
    Part,
    Plan,
    Rule,
    moderate,
)

OPERATIONS = st.text(st.characters(codec="utf-8"), max_size=20)


def plan(*rules: dict[str, Any], seed: int = 1) -> Plan:
    return Plan.model_validate({"seed": seed, "rules": rules})


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    part = draw(st.sampled_from(Part))
    return {
        "part": part,
        "operation": draw(st.sampled_from(["*", "send/*", "a"]) | OPERATIONS),
        "fault": draw(st.sampled_from(sorted(FAULTS[part]))),
        "probability": draw(st.floats(0, 1)),
        "fromSeconds": draw(st.floats(0, 100)),
        "forSeconds": draw(st.none() | st.floats(0, 100)),
        "firstTimes": draw(st.none() | st.integers(1, 99)),
    }


@given(
    st.lists(rules(), max_size=4),
    st.integers(),
    st.sampled_from(Part),
    OPERATIONS,
    st.integers(0, 99),
    st.floats(0, 300),
)
def test_a_decision_is_repeated_and_is_a_rule_about_the_operation(
    drawn: list[dict[str, Any]],
    seed: int,
    part: Part,
    operation: str,
    number: int,
    elapsed: float,
) -> None:
    first, again = plan(*drawn, seed=seed), plan(*drawn, seed=seed)
    faults = FAULTS[part] - {Fault.CLOCK_SKEW}
    rule = first.decide(part, operation, number, elapsed, faults)
    assert rule == again.decide(part, operation, number, elapsed, faults)
    if rule is not None:
        assert rule.fault in faults
        assert rule.holds(part, operation, number, elapsed)
        assert rule.probability > 0
    certain = [each for each in first.rules if each.probability == 1 and each.fault in faults]
    if any(each.holds(part, operation, number, elapsed) for each in certain):
        assert rule is not None


def decided(some: Plan, operation: str, numbers: int, elapsed: float = 0.0) -> list[bool]:
    """Whether each of the first `numbers` requests of storage fails."""
    return [
        some.decide(Part.STORAGE, operation, number, elapsed, OF_REQUESTS) is not None
        for number in range(numbers)
    ]


@settings(max_examples=25)  # of 2,000 draws each
@given(st.integers(), st.floats(0.05, 0.95))
def test_faults_are_as_frequent_as_the_rule_says(seed: int, probability: float) -> None:
    some = plan({"part": "storage", "fault": "reset", "probability": probability}, seed=seed)
    # Six standard deviations.
    assert abs(sum(decided(some, "x", 2000)) / 2000 - probability) < 0.07


def test_a_rule_may_be_about_the_first_times_of_each_operation() -> None:
    twice = plan({"part": "storage", "fault": "reset", "firstTimes": 2})
    for operation in ("read", "write"):
        assert decided(twice, operation, 4, 1e6) == [True, True, False, False]


def test_the_first_rule_that_decides_for_a_fault_wins() -> None:
    some = plan(
        {"part": "servicebus", "operation": "send/*", "fault": "reset", "probability": 0},
        {"part": "servicebus", "operation": "send/a", "fault": "error"},
        {"part": "servicebus", "fault": "latency", "seconds": 1},
    )
    for operation, fault in (("send/a", "error"), ("settle/a", "latency")):
        rule = some.decide(Part.SERVICE_BUS, operation, 0, 0.0, OF_MESSAGES)
        assert rule is not None
        assert rule.fault == fault


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"part": "functions", "fault": "reset"},
            "functions has no such fault; it has duplicate, repeat",
        ),
        ({"part": "mail", "fault": "reset"}, r"rules\[0\].part"),
        ({"part": "storage", "fault": "reset", "probability": 2}, "probability"),
        ({"part": "storage", "fault": "error", "status": 200}, "status"),
        ({"part": "storage", "fault": "error", "chance": 1}, "chance: unknown key"),
        ({"part": "storage", "fault": "latency", "seconds": -1}, "only clockSkew may be negative"),
    ],
)
def test_a_wrong_rule_is_named(tmp_path: Path, rule: dict[str, Any], words: str) -> None:
    (tmp_path / FILE).write_text(json.dumps({"seed": 1, "rules": [rule]}))
    with pytest.raises(ConfigurationError, match=words):
        Injector(tmp_path, Part.STORAGE).next("x")


def test_a_plan_comes_into_force_and_ends_while_a_part_runs(tmp_path: Path) -> None:
    now = 1000.0
    injector = Injector(tmp_path, Part.STORAGE, lambda: now)
    assert injector.next("x") is None
    rule = {"part": "storage", "fault": "reset", "forSeconds": 5}
    (tmp_path / FILE).write_text(json.dumps({"seed": 1, "rules": [rule]}))
    assert injector.next("x") is not None
    now += 5
    assert injector.next("x") is None
    (tmp_path / FILE).write_text(json.dumps({"seed": 12, "rules": [rule]}))
    assert injector.next("x") is not None
    (tmp_path / FILE).unlink()
    assert injector.next("x") is None


def test_a_rule_about_all_operations_leaves_those_that_cannot_have_its_fault() -> None:
    some = plan({"part": "eventgrid", "fault": "duplicate"})
    assert some.decide(Part.EVENT_GRID, "publish/a", 0, 0.0, OF_REQUESTS) is None
    assert some.decide(Part.EVENT_GRID, "deliver/a", 0, 0.0, OF_DELIVERIES) is not None


def test_a_clock_is_wrong_for_a_time(tmp_path: Path) -> None:
    now = 1000.0
    injector = Injector(tmp_path, Part.STORAGE, lambda: now)
    assert injector.clock_skew_seconds() == 0
    rules = [
        {"part": "storage", "fault": "clockSkew", "seconds": -120, "forSeconds": 10},
        {"part": "eventgrid", "fault": "clockSkew", "seconds": 999},
    ]
    (tmp_path / FILE).write_text(json.dumps({"seed": 1, "rules": rules}))
    assert injector.clock_skew_seconds() == -120
    assert injector.next("x") is None, "the operations themselves do not fail"
    now += 10
    assert injector.clock_skew_seconds() == 0


def test_the_moderate_plan_reaches_every_part_and_can_be_written_and_read() -> None:
    some = moderate(7)
    assert {rule.part for rule in some.rules} == set(Part)
    assert Plan.model_validate_json(some.model_dump_json(by_alias=True)) == some
    assert all(isinstance(rule, Rule) and 0 < rule.probability <= 0.1 for rule in some.rules)


def test_an_outage_has_a_beginning_and_an_end() -> None:
    outage = plan({"part": "storage", "fault": "reset", "fromSeconds": 10, "forSeconds": 5})
    failing = [elapsed for elapsed in range(20) if any(decided(outage, "a", 1, elapsed))]
    assert failing == [10, 11, 12, 13, 14]
