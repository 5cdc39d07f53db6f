"""Blob events in the Event Grid schema. Pure: no I/O.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_TYPES = {
    "DeleteBlob": "BlobDeleted",
    "DeleteFile": "BlobDeleted",
    "SetBlobTier": "BlobTierChanged",
    "RenameFile": "BlobRenamed",
    "CreateDirectory": "DirectoryCreated",
    "RenameDirectory": "DirectoryRenamed",
    "DeleteDirectory": "DirectoryDeleted",
}
# Fields of the event of an operation; all others have those of a blob that was written.
_WRITTEN = ("eTag", "contentType", "contentLength", "blobType")
_DESCRIBED = {
    "DeleteBlob": ("contentType", "blobType"),
    "DeleteFile": ("contentType", "blobType"),
    "SetBlobTier": ("contentType", "contentLength", "blobType", "accessTier", "previousTier"),
    "CreateFile": (*_WRITTEN, "contentOffset"),
    "FlushWithClose": (*_WRITTEN, "contentOffset"),
    "RenameFile": (),
    "CreateDirectory": (),
    "RenameDirectory": (),
    "DeleteDirectory": ("recursive",),
}
_FILE_WRITES = {"CreateFile", "FlushWithClose", "DeleteFile"}


def blob_event(change: Mapping[str, Any], sequence: int, *, topic: str, origin: str) -> Any:
    """Return the event of a change. It is the same however often it is read.

    Args:
        change: what `azurite/blob_events.js` wrote about it.
        sequence: rises with each change of the account.
        topic: ARM id of the account.
        origin: scheme and authority of the Blob endpoint, such as `http://127.0.0.1:7080`.
    """
    api = change["api"]
    event_id = uuid.uuid5(uuid.NAMESPACE_OID, change["requestId"])
    described = {
        **change,
        "eTag": change.get("etag", "").strip('"'),
        "contentOffset": change.get("contentLength"),
    }
    names = _DESCRIBED.get(api, _WRITTEN)
    url, source = _url(origin, change), change.get("source")
    urls = {"destinationUrl": url, "sourceUrl": _url(origin, source)} if source else {"url": url}
    return {
        "topic": topic,
        "subject": f"/blobServices/default/containers/{change['container']}/blobs/{change['blob']}",
        "eventType": f"Microsoft.Storage.{_TYPES.get(api, 'BlobCreated')}",
        "eventTime": change["time"],
        "id": str(event_id),
        "data": {
            "api": api,
            "clientRequestId": change["clientRequestId"],
            "requestId": change["requestId"],
            **{name: described[name] for name in names if described.get(name) is not None},
            **urls,
            # A string that sorts in the order of the changes.
            "sequencer": f"{sequence:032x}",
            "storageDiagnostics": {"batchId": str(uuid.uuid5(event_id, "batch"))},
        },
        # Events of blobs have no version.
        "dataVersion": "2" if api in _FILE_WRITES else "1" if _is_of_path(api) else "",
        "metadataVersion": "1",
    }


def _is_of_path(api: str) -> bool:
    return api.endswith(("File", "Directory"))


def _url(origin: str, place: Mapping[str, str]) -> str:
    path = quote(f"{place['account']}/{place['container']}/{place['blob']}", safe="/~")
    return f"{origin}/{path}"
