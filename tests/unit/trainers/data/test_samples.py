from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.manifest import Entry
from trainers.data.samples import Decoded, fingerprint, in_order, is_marker, split


def decoded(path: str, content: str) -> Decoded[None]:
    md5 = hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()
    return Decoded(entry=Entry(path=path, size=0), md5=md5, value=None)


def test_one_in_five_is_held_out() -> None:
    train, held_out = split(decoded("x", str(number)) for number in range(5000))
    assert len(train) + len(held_out) == 5000
    assert len(held_out) / 5000 == pytest.approx(0.2, abs=0.02)


def test_markers_are_no_data() -> None:
    assert is_marker("_SUCCESS")
    assert is_marker("7/.hidden")
    assert not is_marker("7/a_b.png")


def test_the_order_mixes_labels_and_follows_from_the_paths_alone() -> None:
    entries = [Entry(path=f"{label}/{n}.png", size=n) for label in "ab" for n in range(50)]
    ordered = in_order([*entries, Entry(path="_SUCCESS", size=0)])
    assert ordered == in_order(reversed(entries))
    assert sorted(ordered, key=lambda entry: entry.path) == sorted(
        entries, key=lambda entry: entry.path
    )
    assert sum(one.path[0] != other.path[0] for one, other in pairwise(ordered)) > 25


@given(st.sets(st.tuples(st.text(max_size=5), st.text(max_size=5))))
def test_a_fingerprint_is_of_a_set_however_it_is_cut(samples: set[tuple[str, str]]) -> None:
    ordered = [decoded(path, content) for path, content in sorted(samples)]
    half = len(ordered) // 2
    whole = fingerprint(ordered)
    assert fingerprint(reversed(ordered)) == whole
    assert fingerprint(ordered[half:], fingerprint(ordered[:half])) == whole
    assert fingerprint([*ordered, decoded("another", "one")]) != whole
