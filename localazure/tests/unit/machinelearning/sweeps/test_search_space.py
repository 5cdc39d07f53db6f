from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.machinelearning.errors import ArmError
from localazure.machinelearning.sweeps.search_space import (
    DISTRIBUTIONS,
    draw_grid,
    draw_random,
    draw_sobol,
    grid_size,
    parse_search_space,
)

ALL = {
    "optimizer": ["choice", [["sgd", "adam"]]],
    "layers": ["randint", [4]],
    "dropout": ["uniform", [0.1, 0.5]],
    "units": ["quniform", [8, 64, 8]],
    "rate": ["loguniform", [math.log(1e-4), math.log(1e-1)]],
    "noise": ["normal", [0.0, 1.0]],
    "decay": ["qlognormal", [0.0, 1.0, 0.5]],
}


def assert_within(values: dict[str, Any]) -> None:
    assert values["optimizer"] in {"sgd", "adam"}
    assert values["layers"] in range(4)
    assert 0.1 <= values["dropout"] <= 0.5
    assert values["units"] % 8 == 0
    assert 8 <= values["units"] <= 64
    assert 1e-4 <= values["rate"] <= 1e-1
    assert math.isfinite(values["noise"])
    assert values["decay"] % 0.5 == 0


@given(number=st.integers(0, 10_000), seed=st.text(max_size=20))
def test_every_draw_is_in_the_space_and_repeats_itself(number: int, seed: str) -> None:
    space = parse_search_space(ALL)
    values = draw_random(space, number, seed)
    assert_within(values)
    assert draw_random(space, number, seed) == values
    assert draw_random(space, number + 1, seed)["noise"] != values["noise"]


def test_a_sobol_sequence_fills_the_space_evenly_and_repeats_itself() -> None:
    space = parse_search_space({"x": ["uniform", [0, 8]], "y": ["randint", [2]]})
    points = [draw_sobol(space, number, 7) for number in range(8)]
    assert sorted(int(point["x"]) for point in points) == list(range(8)), "one in each eighth"
    assert sum(point["y"] for point in points) == 4
    assert draw_sobol(space, 5, 7) == points[5]


def test_a_grid_has_each_combination_once() -> None:
    space = parse_search_space({"b": ["choice", [[1, 2]]], "a": ["choice", [["x", "y", "z"]]]})
    drawn = [draw_grid(space, number) for number in range(grid_size(space))]
    assert len(drawn) == 6
    assert {(each["a"], each["b"]) for each in drawn} == {(a, b) for a in "xyz" for b in (1, 2)}


def test_a_grid_takes_choices_only() -> None:
    with pytest.raises(ArmError, match=r"searchSpace\.x: grid sampling takes `choice` only"):
        grid_size(parse_search_space({"x": ["uniform", [0, 1]]}))


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (["gamma", [1]], "no distribution"),
        (["uniform", [1]], "takes 2 arguments"),
        (["uniform", ["a", 1]], "must be finite numbers"),
        (["choice", [[]]], "needs values"),
        (["choice", [[{"a": 1}]]], "conditional"),
        ("uniform", "no distribution"),
        (["uniform", [math.nan, 1]], "must be finite numbers"),
        (["uniform", [2, 1]], "min_value must not be above max_value"),
        (["randint", [0]], "upper must be a number from 1"),
        (["quniform", [0, 1, 0]], "q must be above 0"),
        (["normal", [0, -1]], "sigma must be above 0"),
        (["loguniform", [1e-5, 1000]], "no finite numbers; the arguments are exponents of e"),
        (["loguniform", [1000, 1001]], "no finite numbers; the arguments are exponents of e"),
        (["lognormal", [700, 50]], "no finite numbers; the arguments are exponents of e"),
        (["uniform", [-1e308, 1e308]], "no finite numbers"),
        (["quniform", [0, 1e10, 1e-320]], "no finite numbers"),
    ],
)
def test_a_distribution_that_is_wrong_is_named(entry: Any, why: str) -> None:
    with pytest.raises(ArmError, match=rf"searchSpace\.x: .*{why}"):
        parse_search_space({"x": entry})


NUMBERS = st.one_of(st.integers(-(10**400), 10**400), st.floats(), st.sampled_from([0, 1, 1e308]))


@given(
    kind=st.sampled_from([kind for kind in DISTRIBUTIONS if kind != "choice"]),
    numbers=st.lists(NUMBERS, min_size=3, max_size=3),
    trial=st.integers(0, 10_000),
)
def test_every_trial_of_an_accepted_distribution_has_a_finite_value(
    kind: str, numbers: list[float], trial: int
) -> None:
    entry = [kind, numbers[: len(DISTRIBUTIONS[kind].arguments)]]
    try:
        space = parse_search_space({"x": entry})
    except ArmError:
        return
    for values in (draw_random(space, trial, "seed"), draw_sobol(space, trial % 100, 7)):
        assert math.isfinite(values["x"])


def test_an_empty_space_is_refused() -> None:
    with pytest.raises(ArmError, match="at least one hyperparameter"):
        parse_search_space({})
