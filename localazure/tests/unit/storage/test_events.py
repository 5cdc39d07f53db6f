from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from localazure.storage.events import blob_event, with_sequencer
from localazure.storage.operations import Api, Operation, Properties

PROPERTIES = Properties("0x8D", "text/plain", 524288, "BlockBlob")


def event_of(
    api: Api, properties: Properties | None = PROPERTIES, previous_tier: str | None = None
) -> dict[str, Any]:
    return blob_event(
        Operation(api, "/devstoreaccount1/test-container/new%20file.txt", "client"),
        properties,
        event_id="id",
        request_id="request",
        time=datetime(2026, 6, 26, 18, 41, 0, 958410, UTC),
        topic="/subscriptions/s/storageAccounts/devstoreaccount1",
        origin="http://127.0.0.1:7080",
        previous_tier=previous_tier,
    )


def test_created() -> None:
    event = event_of(Api.PUT_BLOCK_LIST)
    data = event.pop("data")
    assert event == {
        "topic": "/subscriptions/s/storageAccounts/devstoreaccount1",
        "subject": "/blobServices/default/containers/test-container/blobs/new file.txt",
        "eventType": "Microsoft.Storage.BlobCreated",
        "eventTime": "2026-06-26T18:41:00.958410Z",
        "id": "id",
        "dataVersion": "",
        "metadataVersion": "1",
    }
    del data["storageDiagnostics"]
    assert data == {
        "api": "PutBlockList",
        "clientRequestId": "client",
        "requestId": "request",
        "eTag": "0x8D",
        "contentType": "text/plain",
        "contentLength": 524288,
        "blobType": "BlockBlob",
        "url": "http://127.0.0.1:7080/devstoreaccount1/test-container/new%20file.txt",
    }


def test_deleted_has_neither_etag_nor_length() -> None:
    event = event_of(Api.DELETE_BLOB)
    assert event["eventType"] == "Microsoft.Storage.BlobDeleted"
    assert not event["data"].keys() & {"eTag", "contentLength"}
    assert event["data"]["contentType"] == "text/plain"


def test_a_change_of_tier_has_both_tiers_and_no_etag() -> None:
    event = event_of(Api.SET_BLOB_TIER, replace(PROPERTIES, tier="Cool"), "Hot")
    assert event["eventType"] == "Microsoft.Storage.BlobTierChanged"
    data = event["data"]
    assert (data["api"], data["accessTier"], data["previousTier"]) == ("SetBlobTier", "Cool", "Hot")
    assert data["contentLength"] == 524288
    assert "eTag" not in data
    of_the_account = event_of(Api.SET_BLOB_TIER, replace(PROPERTIES, tier="Cool"))
    assert "previousTier" not in of_the_account["data"]


@given(st.integers(1, 2**60), st.integers(1, 2**60))
def test_sequencers_compare_as_strings(one: int, other: int) -> None:
    event = event_of(Api.PUT_BLOB)
    first, second = (
        with_sequencer(event, sequence)["data"]["sequencer"] for sequence in (one, other)
    )
    assert (first < second) == (one < other)
    assert "sequencer" not in event["data"]
