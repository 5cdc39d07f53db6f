from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from handlers.landing.manifest_parts import NameRange
from handlers.platform.blob_pages import BlobPage, ListedBlob
from orchestrations.errors import PermanentError

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), unique=True)


def page_of(*names: str) -> BlobPage:
    now = datetime(2026, 11, 23, tzinfo=UTC)
    blobs = [ListedBlob(name, 1, "0x1", None, now, is_directory=False) for name in names]
    return BlobPage(blobs, [], None, is_hierarchical=False)


@given(NAMES, NAMES)
@example(["a", "b", "c"], ["b"])  # a boundary is the name of a blob
def test_each_blob_of_a_page_is_in_one_range(names: list[str], boundaries: list[str]) -> None:
    page = page_of(*sorted(names))
    ranges = [NameRange("", *each) for each in pairwise([None, *sorted(boundaries), None])]
    clipped = [each.clip(page) for each in ranges]
    assert [blob for blobs, _ in clipped for blob in blobs] == page.blobs
    for each, (_, has_ended) in zip(ranges, clipped, strict=True):
        follows = [name for name in names if each.end is not None and name >= each.end]
        assert has_ended == any(name >= (each.start or "") for name in follows)


def test_a_service_that_lists_out_of_order_cannot_be_listed_in_ranges() -> None:
    page = page_of("a", "n", "b")
    with pytest.raises(PermanentError, match="out of order"):
        NameRange("", end="m").clip(page)
    assert NameRange("").clip(page) == (page.blobs, False)
