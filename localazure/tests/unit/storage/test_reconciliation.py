from __future__ import annotations

from dataclasses import replace
from email.utils import formatdate

import pytest

from localazure.storage.operations import Api, Operation, Properties
from localazure.storage.outbox import Intent
from localazure.storage.reconciliation import properties_for, took_place

MADE_SECONDS = 1_800_000_000.7
BEFORE = Properties("0x1", "text/plain", 3, "BlockBlob")


def intent(api: Api, before: Properties | None = None) -> Intent:
    return Intent("id", MADE_SECONDS, Operation(api, "/a/c/b", ""), before)


def blob(modified_seconds: float) -> dict[str, str]:
    return {
        "Last-Modified": formatdate(modified_seconds, usegmt=True),
        "ETag": '"0x2"',
        "Content-Length": "5",
        "Content-Type": "image/png",
        "x-ms-blob-type": "BlockBlob",
    }


@pytest.mark.parametrize("api", [Api.PUT_BLOB, Api.PUT_BLOCK_LIST, Api.COPY_BLOB])
@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (None, False),
        (blob(MADE_SECONDS - 2), False),
        (blob(MADE_SECONDS), True),  # truncated to seconds, it seems older than the intent
        (blob(MADE_SECONDS + 5), True),
    ],
)
def test_write(api: Api, now: dict[str, str] | None, *, expected: bool) -> None:
    assert took_place(intent(api), now) is expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (BEFORE, None, True),
        (BEFORE, blob(MADE_SECONDS - 9), False),
        (None, None, False),  # there was no blob to delete
        (None, blob(MADE_SECONDS), False),
    ],
)
def test_deletion(before: Properties | None, now: dict[str, str] | None, *, expected: bool) -> None:
    assert took_place(intent(Api.DELETE_BLOB, before), now) is expected
    assert took_place(intent(Api.DELETE_DIRECTORY, before), now) is expected


@pytest.mark.parametrize(
    ("etag", "now", "expected"),
    [
        ("0x2", blob(MADE_SECONDS - 9), True),
        ("0x1", blob(MADE_SECONDS), False),  # another file is at the destination
        ("0x2", None, False),
    ],
)
@pytest.mark.parametrize("api", [Api.RENAME_FILE, Api.RENAME_DIRECTORY])
def test_a_rename_is_known_by_the_etag(
    api: Api, etag: str, now: dict[str, str] | None, *, expected: bool
) -> None:
    assert took_place(intent(api, replace(BEFORE, etag=etag)), now) is expected


def test_properties() -> None:
    now = properties_for(intent(Api.PUT_BLOB), blob(MADE_SECONDS))
    assert now == Properties("0x2", "image/png", 5, "BlockBlob")
    assert properties_for(intent(Api.DELETE_BLOB, BEFORE), None) == BEFORE


@pytest.mark.parametrize(("tier", "expected"), [("Cool", True), ("Hot", False)])
def test_a_change_of_tier_is_seen_by_the_tier(tier: str, *, expected: bool) -> None:
    before = replace(BEFORE, tier="Hot")
    now = {**blob(MADE_SECONDS - 9), "x-ms-access-tier": tier}
    assert took_place(intent(Api.SET_BLOB_TIER, before), now) is expected
