from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.landing import forgetting
from orchestrations.contracts.manifest import decode_line, encode_line

TEXTS = st.text('a"\\é', min_size=1, max_size=2)


@pytest.mark.parametrize("few", [0, forgetting.FEW_TEXTS])
@given(st.lists(st.lists(TEXTS, max_size=4), max_size=4), st.sets(TEXTS, min_size=1, max_size=3))
def test_no_line_with_a_text_that_is_searched_for_is_left_out(
    few: int, chunks: list[list[str]], texts: set[str]
) -> None:
    clients: Any = None
    encoded = ["".join(encode_line(it, 1, None, it[::-1]) for it in chunk) for chunk in chunks]
    with (
        patch.object(forgetting, "FEW_TEXTS", few),
        patch.object(forgetting, "read_chunks", return_value=[it.encode() for it in encoded]),
    ):
        near = [it for lines in forgetting.lines_near(clients, "", texts) for it in lines]
    found = {it.path for it in map(decode_line, near)} & texts
    assert found == {it for chunk in chunks for it in chunk} & texts
    etags = {it.etag for it in map(decode_line, near)} & texts
    assert etags == {it[::-1] for chunk in chunks for it in chunk} & texts
