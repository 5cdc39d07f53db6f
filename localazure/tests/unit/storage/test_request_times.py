"""The times at which signed requests are valid."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from localazure.storage.request_times import NOT_NOW, TOO_OLD, refusal_of

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize("header", ["x-ms-date", "Date"])
@pytest.mark.parametrize(
    ("age", "refusal"),
    [(timedelta(minutes=14), None), (timedelta(minutes=16), TOO_OLD), (timedelta(hours=-1), None)],
)
def test_a_request_with_a_key_is_at_most_15_minutes_old(
    header: str, age: timedelta, refusal: object
) -> None:
    sent = format_datetime(NOW - age, usegmt=True)
    headers = CIMultiDict({"Authorization": "SharedKey a:b", header.title(): sent})
    assert refusal_of("/a/c/b", headers, NOW) is refusal


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("se=2026-11-22T12:00:01Z&sig=x", None),
        ("se=2026-11-22T12%3A00%3A00Z&sig=x", NOT_NOW),
        ("st=2026-11-22T12:00:01Z&se=2027-01-01&sig=x", NOT_NOW),
        ("st=2026-11-22&se=2027-01-01T00:00Z&sig=x", None),
        ("si=policy&sig=x", None),
        ("se=2020-01-01", None),  # without a signature, `se` is another parameter
    ],
)
def test_a_shared_access_signature_has_a_beginning_and_an_end(query: str, refusal: object) -> None:
    assert refusal_of(f"/a/c/b?{query}", CIMultiDict[str](), NOW) is refusal


@given(st.text(), st.text(alphabet=st.characters(codec="utf-8")))
def test_a_time_that_cannot_be_read_is_left_to_azurite(date: str, expiry: str) -> None:
    headers = CIMultiDict({"Authorization": "SharedKey a:b", "x-ms-date": date})
    assert refusal_of("/a", headers, NOW) in (None, TOO_OLD)
    assert refusal_of(f"/a?sig=x&se={expiry}", CIMultiDict[str](), NOW) in (None, NOT_NOW)
