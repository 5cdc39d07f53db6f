from __future__ import annotations

import hashlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.manifest import Entry
from trainers.data.samples import fingerprint, in_order, is_held_out, is_marker


def test_one_in_five_is_held_out() -> None:
    digests = [hashlib.md5(b"%d" % n, usedforsecurity=False).hexdigest() for n in range(5000)]
    assert sum(map(is_held_out, digests)) / len(digests) == pytest.approx(0.2, abs=0.02)


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
    ordered = sorted(samples)
    half = len(ordered) // 2
    whole = fingerprint(ordered)
    assert fingerprint(reversed(ordered)) == whole
    assert fingerprint(ordered[half:], fingerprint(ordered[:half])) == whole
    assert fingerprint([*ordered, ("another", "one")]) != whole
