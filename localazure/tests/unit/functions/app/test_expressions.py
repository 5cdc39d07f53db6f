from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.app.expressions import capture_pattern, json_properties, resolve

DATA: dict[str, Any] = {
    "Name": "x",
    "count": 3,
    "done": True,
    "nothing": None,
    "data": {"Url": "https://a/b", "deep": {"id": 7}},
    "when": datetime(2026, 2, 3, 4, 5, 6, 789000, UTC),
}


def filled(template: str) -> str:
    return resolve(template, lambda: DATA, "my_function")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("a/{name}.txt", "a/x.txt"),
        ("{NAME}{name}", "xx"),
        ("{data.url}", "https://a/b"),
        ("{data.deep.id}-{count}-{done}-{nothing}", "7-3-True-"),
        ("{when:yyyy-MM-dd/HHmmss.fff}", "2026-02-03/040506.789"),
        ("{when}", "2026-02-03T04-05-06Z"),
        ("{{literal}} {name}", "{literal} x"),
        ("{sys.MethodName}", "my_function"),
    ],
)
def test_expressions(template: str, expected: str) -> None:
    assert filled(template) == expected


def test_a_new_guid_for_each_expression() -> None:
    first, second = filled("{rand-guid} {sys.RandGuid:N}").split()
    assert str(uuid.UUID(first)) == first
    assert re.fullmatch("[0-9a-f]{32}", second)
    assert uuid.UUID(first) != uuid.UUID(second)


@pytest.mark.parametrize("template", ["{missing}", "{data.missing}", "{name.more}", "{}"])
def test_missing_data_is_named(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(template))):
        filled(template)


def test_an_unknown_format_of_a_guid() -> None:
    with pytest.raises(ValueError, match="'Q' is not a format of a GUID"):
        filled("{rand-guid:Q}")


SEGMENTS = st.text("abc.-/ü{}", min_size=1, max_size=8)


@given(SEGMENTS, SEGMENTS)
def test_a_path_that_was_filled_is_captured_again(first: str, second: str) -> None:
    template = "in/{first}/x/{second}.txt"
    data = {"first": first.replace("/", "_"), "second": second.replace("/", "_")}
    path = resolve(template, lambda: data, "f")
    match = capture_pattern(template).fullmatch(path)
    assert match is not None
    assert match.groupdict() == data


@given(st.text())
def test_any_literal_path_matches_itself_only(text: str) -> None:
    escaped = text.replace("{", "{{").replace("}", "}}")
    assert capture_pattern(escaped).fullmatch(text)
    assert not capture_pattern(escaped).fullmatch(text + "x")


@pytest.mark.parametrize("template", ["a/{b.c}", "a/{b}/{b}", "a/{1}"])
def test_a_pattern_that_cannot_capture(template: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(template))):
        capture_pattern(template)


def test_members_of_json_objects_only() -> None:
    assert json_properties('{"a": 1}') == {"a": 1}
    assert json_properties("[1]") == json_properties("text") == {}
