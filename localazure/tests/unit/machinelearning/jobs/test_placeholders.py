from __future__ import annotations

import pytest

from localazure.machinelearning.jobs.placeholders import UnknownPlaceholderError, expand


def test_placeholders_become_values() -> None:
    text = "python t.py --data ${{inputs.data}} --out '${{ outputs.my-out }}' $HOME ${X}"
    expanded = expand(text, inputs={"data": "/in"}, outputs={"my-out": "/out"})
    assert expanded == "python t.py --data /in --out '/out' $HOME ${X}"


def test_a_value_is_not_expanded_again() -> None:
    assert expand("${{inputs.a}}", inputs={"a": "${{inputs.a}}"}, outputs={}) == "${{inputs.a}}"


def test_an_optional_block_is_kept_if_all_its_inputs_are_given() -> None:
    text = "t $[[--a ${{inputs.a}} --b ${{inputs.b}}]] $[[--c ${{inputs.c}}]]"
    assert expand(text, inputs={"a": "1", "c": "3"}, outputs={}) == "t  --c 3"


def test_an_unknown_name_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownPlaceholderError, match="no input 'x'"):
        expand("${{inputs.x}}", inputs={}, outputs={"x": "1"})
