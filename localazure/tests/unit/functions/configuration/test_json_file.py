from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localazure.functions.configuration.json_file import parse_object, read_object
from localazure.functions.errors import AppLoadError


def test_comments_are_left_out() -> None:
    text = '{ // one\n "a": "http://x/*y*/", /* two\n */ "b": 1 }'
    assert parse_object(text) == {"a": "http://x/*y*/", "b": 1}


def test_trailing_commas_are_left_out() -> None:
    text = '{"a": [1, 2, ], // one\n "b": ",]", /* two */ }'
    assert parse_object(text) == {"a": [1, 2], "b": ",]"}


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_plain_json_is_read_as_it_is(document: dict[str, Any]) -> None:
    assert parse_object(json.dumps(document)) == document
    assert parse_object(json.dumps(document, indent=2, ensure_ascii=False)) == document


@pytest.mark.parametrize(("text", "message"), [("{", "line 1"), ("[]", "found list")])
def test_an_error_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text)
    with pytest.raises(AppLoadError) as caught:
        read_object(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_byte_order_mark_is_tolerated(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(b'\xef\xbb\xbf{"version": "2.0"}')
    assert read_object(path) == {"version": "2.0"}
