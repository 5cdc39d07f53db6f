from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.operate.api.actions import (
    METADATA_LIMIT_BYTES,
    Action,
    listed_text,
    make_action,
    roles,
)

TEXTS = st.text(alphabet=st.sampled_from("aé漢😀\n"), max_size=600)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_what_lists_show_fits_into_the_metadata_of_a_blob(
    on: str, by: str, reason: str, outcome: str
) -> None:
    action = make_action("cancel", on, by=by, reason=reason, outcome=outcome)
    text = listed_text(action)
    assert len(text.encode()) <= METADATA_LIMIT_BYTES
    assert Action.model_validate_json(text).at == action.at


def test_long_texts_in_any_language_are_cut_and_short_ones_are_not() -> None:
    short = make_action(
        "cancel", "run digits-1", by="ada", reason="漢字 " * 50, outcome="requested"
    )
    assert Action.model_validate_json(listed_text(short)) == short
    long = make_action("cancel", "run", by="😀" * 200, reason="😀" * 500, outcome="😀" * 500)
    assert len(json.dumps(long.model_dump(mode="json"))) > METADATA_LIMIT_BYTES
    assert Action.model_validate_json(listed_text(long)).reason == "😀" * 124 + "…"


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        (
            {"claims": [{"typ": "roles", "val": "Approver"}, {"typ": "name", "val": "x"}]},
            {"Approver"},
        ),
        ({"role_typ": "r", "claims": [{"typ": "r", "val": "Approver"}]}, {"Approver"}),
        ({"claims": []}, set[str]()),
        ({}, set[str]()),
        ([], set[str]()),
    ],
)
def test_the_roles_are_those_of_the_token(principal: Any, expected: set[str]) -> None:
    header = base64.b64encode(json.dumps(principal).encode()).decode()
    assert roles({"x-ms-client-principal": header}) == expected


@pytest.mark.parametrize("header", ["", "no base64", "bnVsbA==", "Ww=="])
def test_a_header_that_is_none_gives_no_roles(header: str) -> None:
    assert roles({"x-ms-client-principal": header}) == set()
