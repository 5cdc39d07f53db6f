from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.landing.blob_events import (
    MAX_PATH_BYTES,
    is_safe_path,
    parse_blob_address,
    parse_blob_event,
    watching,
    why_unsafe,
)
from handlers.platform.event_envelope import EventEnvelope
from orchestrations.errors import InvalidEvent
from tests.unit.orchestrations.examples import PIPELINE

TOPIC = (
    "/subscriptions/s/resourceGroups/r/providers/Microsoft.Storage/storageAccounts/landingaccount"
)
ACCOUNT_URL = "http://127.0.0.1:10000/devstoreaccount1/"


def event(**changes: Any) -> EventEnvelope:
    fields: dict[str, Any] = {
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "source": TOPIC,
        "subject": "/blobServices/default/containers/landing/blobs/digits/7/one.png",
        "type": "Microsoft.Storage.BlobCreated",
        "time": datetime(2026, 11, 21, tzinfo=UTC),
        "data": {"eTag": '"0x8D4BCC2E4835CD0"', "contentLength": 5, "sequencer": "0044"},
    }
    return EventEnvelope(**fields | changes)


def test_a_blob_event_is_parsed_with_its_etag_unquoted() -> None:
    landed = parse_blob_event(event())
    assert landed.account == "landingaccount"
    assert (landed.container, landed.blob) == ("landing", "digits/7/one.png")
    assert (landed.change, landed.etag, landed.size) == ("created", "0x8D4BCC2E4835CD0", 5)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("BlobRenamed", "renamed"),
        ("DirectoryRenamed", "directory-renamed"),
        ("BlobDeleted", "deleted"),
    ],
)
def test_a_rename_is_an_event_of_the_new_name_and_has_no_etag_like_a_deletion(
    name: str, change: str
) -> None:
    """The event of a commit by Spark in an account with a hierarchical namespace."""
    data = {
        "api": "RenameFile",
        "sourceUrl": "https://landingaccount.dfs.core.windows.net/landing/digits/_temporary/0",
        "destinationUrl": "https://landingaccount.dfs.core.windows.net/landing/digits/7/one.png",
    }
    landed = parse_blob_event(event(type=f"Microsoft.Storage.{name}", data=data))
    assert (landed.change, landed.blob) == (change, "digits/7/one.png")
    assert (landed.etag, landed.size) == ("", 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "Microsoft.Storage.BlobTierChanged"}, "BlobTierChanged"),
        ({"subject": "/blobServices/default/containers/landing"}, "names no blob"),
        ({"source": "/subscriptions/s"}, "not a storage account"),
        ({"data": {}}, "eTag is missing"),
        ({"data": None}, "not an object"),
        ({"data": ["eTag"]}, "not an object"),
        ({"subject": "/blobServices/default/containers/c/blobs/digits/../x"}, "dot segment"),
        ({"subject": "/blobServices/default/containers/c/blobs/digits/%2e%2e/x"}, "dot segment"),
        ({"subject": "/blobServices/default/containers/c/blobs/a\\b"}, "backslash"),
        ({"subject": "/blobServices/default/containers/c/blobs/a%0ab"}, "control"),
        ({"subject": "/blobServices/default/containers/c/blobs/" + "a" * 1025}, "1024"),
        ({"subject": "/blobServices/default/containers/c/blobs/x/" + "a" * 900}, "255 bytes"),
    ],
)
def test_an_event_that_cannot_be_trusted_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidEvent, match=words):
        parse_blob_event(event(**changes))


PARTS = st.sampled_from(["a", "é", "数", "😀", "a/", "\ud800"])
COUNTS = st.sampled_from([63, 64, 85, 86, 127, 128, 255, 256, 512, 900, 1024])


@given(part=PARTS, count=COUNTS, rest=st.text("a/😀", max_size=3))
def test_an_accepted_path_can_be_a_file_on_a_node(part: str, count: int, rest: str) -> None:
    """A component of a path has at most 255 bytes (NAME_MAX), a path 4,096 (PATH_MAX)."""
    path = part * count + rest
    encoded = [len(part.encode("utf-8", "surrogatepass")) for part in path.split("/")]
    fits = max(encoded) <= 255 and sum(encoded) + len(encoded) - 1 <= MAX_PATH_BYTES
    assert is_safe_path(path) == (fits and len(path) <= 1024)


@given(st.text())
def test_an_accepted_path_stays_in_its_folder(path: str) -> None:
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
        "https://elsewhere.blob.core.windows.net/landing/a?sig=c2VjcmV0",
        "https://[/landing/a",
        ACCOUNT_URL.replace("devstoreaccount1", "devstoreaccount12") + "landing/a",
    ],
)
def test_what_is_no_blob_of_the_account_is_refused_without_its_signature(address: str) -> None:
    for account_url in (ACCOUNT_URL, ACCOUNT_URL.rstrip("/")):
        with pytest.raises(InvalidEvent) as refused:
            parse_blob_address(address, account_url)
        assert "c2VjcmV0" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a/../b", "a dot segment"),
        ("a\\b", "a backslash"),
        ("a\nb", "the control character '\\n'"),
        ("%2e%2e/a", "a dot segment (. or ..) after percent-decoding"),
        ("%5C", "after percent-decoding"),
        ("%00", "the control character '\\x00' after percent-decoding"),
        ("x" * 1025, "longer than 1024 characters"),
    ],
)
def test_an_unsafe_name_says_why(name: str, words: str) -> None:
    assert words in str(why_unsafe(name))


@given(st.text(st.sampled_from(list("a/.%25e\\\n"))))
def test_only_unsafe_names_have_a_reason(name: str) -> None:
    assert (why_unsafe(name) is None) == is_safe_path(name)
