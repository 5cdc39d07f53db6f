from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.events import with_sequencer


@given(st.integers(1, 2**60), st.integers(1, 2**60))
def test_sequencers_compare_as_strings(one: int, other: int) -> None:
    event = {"data": {"api": "PutBlob"}}
    first, second = (
        with_sequencer(event, sequence)["data"]["sequencer"] for sequence in (one, other)
    )
    assert (first < second) == (one < other)
    assert "sequencer" not in event["data"]
