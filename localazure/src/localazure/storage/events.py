"""Blob events in the Event Grid schema. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from localazure.storage.operations import Api, Operation, Properties

CREATED = "Microsoft.Storage.BlobCreated"
DELETED = "Microsoft.Storage.BlobDeleted"
TIER_CHANGED = "Microsoft.Storage.BlobTierChanged"

_TYPES = {
    Api.DELETE_BLOB: DELETED,
    Api.DELETE_FILE: DELETED,
    Api.SET_BLOB_TIER: TIER_CHANGED,
    Api.RENAME_FILE: "Microsoft.Storage.BlobRenamed",
    Api.CREATE_DIRECTORY: "Microsoft.Storage.DirectoryCreated",
    Api.RENAME_DIRECTORY: "Microsoft.Storage.DirectoryRenamed",
    Api.DELETE_DIRECTORY: "Microsoft.Storage.DirectoryDeleted",
}
# Data versions of the events of files. Events of blobs have none.
_DATA_VERSIONS = {Api.CREATE_FILE: "2", Api.FLUSH_WITH_CLOSE: "2", Api.DELETE_FILE: "2"}


def blob_event(
    operation: Operation,
    properties: Properties | None,
    *,
    event_id: str,
    request_id: str,
    time: datetime,
    topic: str,
    origin: str,
    previous_tier: str | None = None,
) -> dict[str, Any]:
    """Return the event of an operation that succeeded, without `data.sequencer`.

    Args:
        operation: the operation.
        properties: the blob's, after its creation or before its deletion; None if unknown.
        event_id: the id, equal in every copy of this event.
        request_id: `x-ms-request-id` of the answer.
        time: the time of the operation, UTC.
        topic: ARM id of the account.
        origin: scheme and authority of the Blob endpoint, such as `http://127.0.0.1:7080`.
        previous_tier: the blob's tier before a change; None if it was the account's tier.
    """
    deleted = operation.api.is_deletion
    is_tier_change = operation.api is Api.SET_BLOB_TIER
    data: dict[str, Any] = {
        "api": operation.api.value,
        "clientRequestId": operation.client_request_id,
        "requestId": request_id,
    }
    if properties is not None and operation.api.describes_blob:
        if not (deleted or is_tier_change):
            data["eTag"] = properties.etag
        data["contentType"] = properties.content_type
        if not deleted:
            data["contentLength"] = properties.length
            if operation.api.is_dfs:
                data["contentOffset"] = properties.length
        data["blobType"] = properties.blob_type
    if is_tier_change:
        tiers = {"accessTier": properties and properties.tier, "previousTier": previous_tier}
        data |= {name: tier for name, tier in tiers.items() if tier is not None}
    if operation.source:
        data["destinationUrl"] = f"{origin}{operation.path}"
        data["sourceUrl"] = f"{origin}{operation.source}"
    else:
        data["url"] = f"{origin}{operation.path}"
    if operation.api is Api.DELETE_DIRECTORY:
        data["recursive"] = "true" if operation.is_recursive else "false"
    data["storageDiagnostics"] = {"batchId": str(uuid.uuid5(uuid.NAMESPACE_OID, event_id))}
    return {
        "topic": topic,
        "subject": (
            f"/blobServices/default/containers/{operation.container}/blobs/{operation.blob}"
        ),
        "eventType": _TYPES.get(operation.api, CREATED),
        "eventTime": time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "id": event_id,
        "data": data,
        "dataVersion": _DATA_VERSIONS.get(operation.api, "1") if operation.api.is_dfs else "",
        "metadataVersion": "1",
    }


def with_sequencer(event: dict[str, Any], sequence: int) -> dict[str, Any]:
    """Return the event with its sequencer, a string that sorts in the account's order."""
    return {**event, "data": {**event["data"], "sequencer": f"{sequence:032x}"}}
