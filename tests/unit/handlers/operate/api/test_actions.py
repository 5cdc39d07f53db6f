from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from handlers.operate.api.actions import METADATA_LIMIT_BYTES, Action, listed_text, make_action

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
