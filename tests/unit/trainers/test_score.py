from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.score import read_request
from trainers.serving.scoring import RequestInvalid


@given(st.lists(st.binary()))
def test_base64_in_json_is_what_was_meant(files: list[bytes]) -> None:
    body = json.dumps({"images": [base64.b64encode(file).decode() for file in files]})
    assert read_request(body) == read_request(body.encode()) == (files, None)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "expected"),
        ('{"image": []}', "expected"),
        ('{"images": "x"}', "expected"),
        ('{"images": [3]}', "image 0 is not base64"),
        ('{"images": ["", "no base64!"]}', "image 1 is not base64"),
        ('{"images": ["ü"]}', "image 0 is not base64"),
    ],
)
def test_a_malformed_request_is_refused_with_its_reason(body: str, says: str) -> None:
    with pytest.raises(RequestInvalid, match=says):
        read_request(body)


@given(st.text() | st.binary())
def test_whatever_comes_is_taken_or_refused(body: str | bytes) -> None:
    try:
        files, _ = read_request(body)
    except RequestInvalid:
        return
    assert all(isinstance(file, bytes) for file in files)


def test_a_threshold_may_be_asked_for() -> None:
    assert read_request('{"images": []}') == ([], None)
    assert read_request('{"images": [], "score_threshold": 0.3}') == ([], 0.3)
