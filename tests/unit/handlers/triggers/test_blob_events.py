from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.landing_zone import event_log
from handlers.triggers.blob_events import (
    BlobLanded,
    is_safe_path,
    parse_blob_address,
    parse_blob_event,
    watching,
)
from orchestrations.errors import InvalidEvent
from tests.unit.orchestrations.examples import PIPELINE

TOPIC = (
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/landingaccount"
)
ACCOUNT_URL = "http://127.0.0.1:10000/devstoreaccount1/"


def event(**changes: Any) -> dict[str, Any]:
    return {
        "event_id": "831e1650-001e-001b-66ab-eeb76e069631",
        "topic": TOPIC,
        "subject": "/blobServices/default/containers/landing/blobs/digits/7/one.png",
        "event_type": "Microsoft.Storage.BlobCreated",
        "event_time": datetime(2026, 11, 21, tzinfo=UTC),
        "data": {"eTag": '"0x8D4BCC2E4835CD0"', "contentLength": 5, "sequencer": "0044"},
    } | changes


def test_a_blob_event_is_parsed_with_its_etag_unquoted() -> None:
    landed = parse_blob_event(**event())
    assert landed.account == "landingaccount"
    assert (landed.container, landed.blob) == ("landing", "digits/7/one.png")
    assert landed.etag == "0x8D4BCC2E4835CD0"
    assert (landed.size, landed.sequencer) == (5, "0044")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"event_type": "Microsoft.Storage.BlobDeleted"}, "BlobDeleted"),
        ({"subject": "/blobServices/default/containers/landing"}, "names no blob"),
        ({"topic": "/subscriptions/s"}, "no storage account"),
        ({"data": {}}, "eTag is missing"),
        ({"data": None}, "no object"),
        ({"data": ["eTag"]}, "no object"),
        ({"subject": "/blobServices/default/containers/c/blobs/digits/../x"}, "dot segment"),
        ({"subject": "/blobServices/default/containers/c/blobs/digits/%2e%2e/x"}, "dot segment"),
        ({"subject": "/blobServices/default/containers/c/blobs/a\\b"}, "backslash"),
        ({"subject": "/blobServices/default/containers/c/blobs/a%0ab"}, "control"),
        ({"subject": "/blobServices/default/containers/c/blobs/" + "a" * 1025}, "1024"),
    ],
)
def test_an_event_that_cannot_be_trusted_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidEvent, match=words):
        parse_blob_event(**event(**changes))


@given(st.text())
def test_a_path_that_is_let_through_has_no_way_out(path: str) -> None:
    if not is_safe_path(path):
        return
    assert ".." not in path.split("/")
    assert "\\" not in path
    assert path.isprintable() or not any(ord(character) < 32 for character in path)


def test_a_pipeline_watches_its_prefix_and_nothing_else() -> None:
    assert watching([PIPELINE], "landing", "digits/7/one.png") is PIPELINE
    assert watching([PIPELINE], "landing", "letters/a.png") is None
    assert watching([PIPELINE], "other", "digits/7/one.png") is None


@pytest.mark.parametrize(
    "address", ["landing/digits/a b.png", ACCOUNT_URL + "landing/digits/a%20b.png"]
)
def test_a_blob_is_addressed_by_path_or_url(address: str) -> None:
    assert parse_blob_address(address, ACCOUNT_URL) == ("landing", "digits/a b.png")


@pytest.mark.parametrize(
    "address",
    [
        "",
        "landing",
        "landing/",
        "https://elsewhere.blob.core.windows.net/landing/a",
        "https://[/landing/a",
    ],
)
def test_what_is_no_blob_of_the_account_is_refused(address: str) -> None:
    with pytest.raises(InvalidEvent):
        parse_blob_address(address, ACCOUNT_URL)


def test_an_account_whose_name_begins_like_ours_is_another() -> None:
    ours = "http://127.0.0.1:10000/devstoreaccount1"
    assert parse_blob_address(f"{ours}/landing/a", ours) == ("landing", "a")
    with pytest.raises(InvalidEvent):
        parse_blob_address(f"{ours}2/landing/a", ours)


def test_the_signature_in_an_address_is_not_told_again() -> None:
    with pytest.raises(InvalidEvent) as refused:
        parse_blob_address("https://elsewhere.example/landing/a?sig=c2VjcmV0", ACCOUNT_URL)
    assert "c2VjcmV0" not in str(refused.value)


def landed(etag: str, sequencer: str) -> BlobLanded:
    data = {"eTag": etag, "contentLength": 5, "sequencer": sequencer}
    return parse_blob_event(**event(data=data))


def entry(etag: str, sequencer: str, decision: event_log.Decision = "merged") -> event_log.Entry:
    return event_log.Entry(
        event_id="e",
        etag=etag,
        sequencer=sequencer,
        size=5,
        event_time="",
        decided_at="",
        decision=decision,
        reason="",
    )


def test_the_first_event_of_a_content_is_news() -> None:
    assert event_log.decide([], landed("a", "1")) is None
    assert event_log.decide([entry("a", "1")], landed("b", "2")) is None


def test_the_same_content_is_a_duplicate_whatever_was_in_between() -> None:
    verdict = event_log.decide([entry("a", "1"), entry("b", "2")], landed("a", "1"))
    assert verdict is not None
    assert verdict[0] == "duplicate"


def test_a_late_event_of_an_older_write_is_superseded() -> None:
    verdict = event_log.decide([entry("b", "2")], landed("a", "1"))
    assert verdict is not None
    assert verdict[0] == "superseded"


def test_what_was_only_filtered_does_not_count_as_seen() -> None:
    assert event_log.decide([entry("a", "1", "filtered")], landed("a", "1")) is None


@given(st.permutations([1, 2, 3, 4]), st.lists(st.integers(0, 3), max_size=8))
def test_in_whatever_order_they_come_each_write_is_news_at_most_once(
    order: list[int], copies: list[int]
) -> None:
    page: list[event_log.Entry] = []
    news: list[int] = []
    for write in order + [order[index] for index in copies]:
        verdict = event_log.decide(page, landed(str(write), str(write)))
        if verdict is None:
            news.append(write)
        page.append(entry(str(write), str(write), "merged" if verdict is None else verdict[0]))
    assert news == sorted(set(news))
    assert max(order) in news
