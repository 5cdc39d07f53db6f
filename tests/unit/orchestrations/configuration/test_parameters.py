from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrations.configuration.parameters import Parameter, fill_defaults, problem_with

DECLARED = {
    "seed": Parameter(type="integer", default=0, minimum=0, maximum=9),
    "rate": Parameter(type="number", default=0.1),
    "augment": Parameter(type="boolean", default=True),
    "network": Parameter(type="text", default="small", values=["small", "large"]),
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sed": 1}, "there are: seed, rate, augment, network"),
        ({"seed": -1}, "-1 is less than 0"),
        ({"seed": 10}, "10 is more than 9"),
        ({"seed": 1.5}, "not of type integer"),
        ({"seed": True}, "not of type integer"),
        ({"rate": "0.1"}, "not of type number"),
        ({"augment": 1}, "not of type boolean"),
        ({"network": "tiny"}, "none of 'small', 'large'"),
    ],
)
def test_what_does_not_fit_is_named(given: dict[str, Any], words: str) -> None:
    found = problem_with(DECLARED, given)
    assert found is not None
    assert found[0] == next(iter(given))
    assert words in found[1]


def test_what_is_not_given_has_its_default() -> None:
    given = {"seed": 9, "rate": 2, "network": "large"}
    assert problem_with(DECLARED, given) is None
    assert fill_defaults(DECLARED, given) == given | {"augment": True}


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "integer", "default": "0"},
        {"type": "integer", "default": 5, "maximum": 4},
        {"type": "text", "default": "a", "minimum": 1},
        {"type": "text", "default": "a", "values": ["b"]},
        {"type": "text", "default": "a" * 101},
    ],
)
def test_a_declaration_that_refuses_its_own_default_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Parameter.model_validate(declared)
