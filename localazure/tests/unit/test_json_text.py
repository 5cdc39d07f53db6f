from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.json_text import parse_json

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(DOCUMENTS)
def test_json_is_parsed_as_text_and_as_bytes(document: object) -> None:
    text = json.dumps(document, ensure_ascii=False)
    assert parse_json(text) == document
    assert parse_json(text.encode("utf-8", "surrogatepass")) == document


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":['])
def test_what_is_nested_too_deeply_is_refused_as_other_text_that_is_no_json(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(opening * 100_000)


@given(st.text() | st.binary())
def test_nothing_else_is_raised(text: str | bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)
