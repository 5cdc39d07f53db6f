from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.eventgrid.filters import AdvancedFilter, Filter, lookup
from localazure.eventgrid.schemas import Schema

EVENT: dict[str, Any] = {
    "id": "1",
    "subject": "/blobServices/default/containers/landing/blobs/A.png",
    "eventType": "Microsoft.Storage.BlobCreated",
    "data": {
        "n": 5,
        "f": 2.5,
        "s": "Hello",
        "b": True,
        "z": None,
        "list": ["x", "Y"],
        "o": {"k": 1},
    },
}


OPERATORS = {
    name
    for condition in get_args(get_args(AdvancedFilter)[0])
    for name in get_args(condition.model_fields["operator_type"].annotation)
}


def advanced(operator: str, key: str, operands: tuple[Any, ...], *, arrays: bool = False) -> Filter:
    condition: dict[str, Any] = {"operatorType": operator, "key": key}
    if "Than" in operator or operator == "BoolEquals":
        (condition["value"],) = operands
    elif "Null" not in operator:
        condition["values"] = operands
    return Filter.model_validate(
        {"advancedFilters": [condition], "enableAdvancedFilteringOnArrays": arrays}
    )


def matches(filter_: Filter, **changes: Any) -> bool:
    return filter_.matches({**EVENT, **changes}, Schema.EVENT_GRID)


def test_event_types() -> None:
    wanted = Filter(included_event_types=("microsoft.Storage.BlobCreated",))
    assert matches(wanted)
    assert not matches(wanted, eventType="Microsoft.Storage.BlobDeleted")
    assert wanted.matches({"type": "Microsoft.Storage.BlobCreated"}, Schema.CLOUD_EVENTS)


@pytest.mark.parametrize(
    ("begins", "ends", "case_sensitive", "expected"),
    [
        ("/blobServices/default/containers/landing/", "", False, True),
        ("/BLOBSERVICES/", ".PNG", False, True),
        ("/BLOBSERVICES/", "", True, False),
        ("/blobServices/", ".png", True, True),
        ("/blobServices/default/containers/other/", "", False, False),
        ("", ".jpg", False, False),
    ],
)
def test_subject(begins: str, ends: str, *, case_sensitive: bool, expected: bool) -> None:
    wanted = Filter(
        subject_begins_with=begins, subject_ends_with=ends, is_subject_case_sensitive=case_sensitive
    )
    assert matches(wanted) is expected


@pytest.mark.parametrize(
    ("operator", "key", "operands", "expected"),
    [
        ("NumberIn", "data.n", (4, 5), True),
        ("NumberIn", "data.n", (4,), False),
        ("NumberIn", "data.b", (1,), False),
        ("NumberNotIn", "data.n", (4,), True),
        ("NumberNotIn", "data.n", (5,), False),
        ("NumberNotIn", "data.absent", (5,), True),
        ("NumberLessThan", "data.f", (2.6,), True),
        ("NumberLessThan", "data.n", (5,), False),
        ("NumberLessThanOrEquals", "data.n", (5,), True),
        ("NumberGreaterThan", "data.n", (5,), False),
        ("NumberGreaterThan", "data.s", (1,), False),
        ("NumberGreaterThanOrEquals", "data.n", (5,), True),
        ("NumberInRange", "data.n", ((1, 2), (5, 9)), True),
        ("NumberInRange", "data.n", ((6, 9),), False),
        ("NumberNotInRange", "data.n", ((6, 9),), True),
        ("NumberNotInRange", "data.n", ((5, 5),), False),
        ("BoolEquals", "data.b", (True,), True),
        ("BoolEquals", "data.b", (False,), False),
        ("BoolEquals", "data.n", (True,), False),
        ("StringIn", "data.s", ("hello",), True),
        ("StringIn", "data.absent", ("hello",), False),
        ("StringNotIn", "data.s", ("hello",), False),
        ("StringNotIn", "data.absent", ("hello",), True),
        ("StringBeginsWith", "Subject", ("/blobs", "/blobservices"), True),
        ("StringNotBeginsWith", "subject", ("/x",), True),
        ("StringEndsWith", "subject", (".png",), True),
        ("StringNotEndsWith", "subject", (".png",), False),
        ("StringContains", "data.s", ("ell",), True),
        ("StringNotContains", "data.s", ("ell",), False),
        ("IsNullOrUndefined", "data.z", (None,), True),
        ("IsNullOrUndefined", "data.absent.deeper", (None,), True),
        ("IsNullOrUndefined", "data.n", (None,), False),
        ("IsNotNull", "data.o.k", (None,), True),
        ("IsNotNull", "data.z", (None,), False),
        ("IsNotNull", "data.list", (None,), True),
    ],
)
def test_operators(operator: str, key: str, operands: tuple[Any, ...], *, expected: bool) -> None:
    assert matches(advanced(operator, key, operands)) is expected


def test_every_documented_operator_is_tested() -> None:
    marks = test_operators.pytestmark[0].args[1]  # type: ignore[attr-defined] # set by pytest
    assert {case[0] for case in marks} == set(OPERATORS)


@pytest.mark.parametrize(
    ("operator", "operand", "arrays", "expected"),
    [
        ("StringIn", "y", True, True),
        ("StringIn", "y", False, False),
        ("StringNotIn", "y", True, False),
        ("StringNotIn", "q", True, True),
    ],
)
def test_arrays(operator: str, operand: str, *, arrays: bool, expected: bool) -> None:
    assert matches(advanced(operator, "data.list", (operand,), arrays=arrays)) is expected


def test_all_conditions_must_hold() -> None:
    yes = advanced("NumberIn", "data.n", (5,)).advanced_filters
    no = advanced("NumberIn", "data.n", (6,)).advanced_filters
    assert matches(Filter(advanced_filters=yes + yes))
    assert not matches(Filter(advanced_filters=yes + no))


scalars = (
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("aB", max_size=2)
)
numbers = st.integers(-2, 2)
operands_of = {
    "NumberIn": st.lists(numbers, max_size=3).map(tuple),
    "NumberInRange": st.lists(st.tuples(numbers, numbers).map(sorted), max_size=3).map(tuple),
}
strings = st.lists(st.text("ab", min_size=1, max_size=2), max_size=3).map(tuple)


@given(data=st.data(), value=scalars | st.lists(scalars, max_size=3), arrays=st.booleans())
def test_a_negated_operator_is_the_opposite(
    data: st.DataObject, value: Any, *, arrays: bool
) -> None:
    negated = data.draw(
        st.sampled_from(sorted(n for n in OPERATORS if "Not" in n and n != "IsNotNull"))
    )
    positive = negated.replace("Not", "")
    operands = data.draw(operands_of.get(positive, strings))
    one, other = (
        matches(advanced(operator, "data.v", operands, arrays=arrays), data={"v": value})
        for operator in (positive, negated)
    )
    assert one != other


def test_lookup() -> None:
    assert lookup(EVENT, "EVENTTYPE") == "Microsoft.Storage.BlobCreated"
    assert lookup(EVENT, "Data.o.k") == 1
    assert lookup(EVENT, "data.O.k") is None
    assert lookup(EVENT, "data.n.k") is None
