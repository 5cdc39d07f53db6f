"""BlobCreated events, parsed and checked. Pure: an event is a hint, and untrusted.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from orchestrations.errors import InvalidEvent
from orchestrations.pipeline import Pipeline

BLOB_CREATED = "Microsoft.Storage.BlobCreated"
_SUBJECT = re.compile(r"^/blobServices/default/containers/(?P<container>[^/]+)/blobs/(?P<blob>.+)$")
_DOT_SEGMENT = re.compile(r"(^|/)\.{1,2}(/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_BLOB_NAME_LENGTH = 1024  # Azure Storage's own limit


@dataclass(frozen=True, kw_only=True)
class BlobLanded:
    """One BlobCreated event."""

    event_id: str
    account: str
    container: str
    blob: str
    etag: str
    sequencer: str
    """Orders the events of one blob, compared as a string; empty where the service gives none."""
    size: int
    event_time: datetime


def normal_etag(etag: str) -> str:
    """An ETag without the quotes that some of Azure's answers put around it."""
    return etag.strip('"')


def parse_blob_event(
    *,
    event_id: str,
    topic: str,
    subject: str,
    event_type: str,
    event_time: datetime,
    data: object,
) -> BlobLanded:
    """Parse and check one event of the Event Grid schema.

    Raises:
        InvalidEvent: it is of another type, lacks a field, or names a path that nobody uploads in
            good faith (`..`, encoded dots, backslashes, control characters).
    """
    if event_type != BLOB_CREATED:
        raise InvalidEvent(f"event {event_id}: type {event_type!r} is not {BLOB_CREATED}")
    match = _SUBJECT.match(subject)
    if match is None:
        raise InvalidEvent(f"event {event_id}: subject {subject!r} names no blob")
    account = re.search(r"/storageAccounts/([a-z0-9]{3,24})$", topic)
    if account is None:
        raise InvalidEvent(f"event {event_id}: topic {topic!r} is no storage account")
    blob = match["blob"]
    if not is_safe_path(blob):
        raise InvalidEvent(
            f"event {event_id}: blob name {blob!r} holds a dot segment, a backslash or a control "
            f"character, or is longer than {MAX_BLOB_NAME_LENGTH} characters"
        )
    if not isinstance(data, Mapping):
        raise InvalidEvent(f"event {event_id}: data is no object")
    fields = cast("Mapping[str, Any]", data)
    etag = fields.get("eTag")
    if not isinstance(etag, str) or not etag:
        raise InvalidEvent(f"event {event_id}: data.eTag is missing")
    size = fields.get("contentLength")
    return BlobLanded(
        event_id=event_id,
        account=account[1],
        container=match["container"],
        blob=blob,
        etag=normal_etag(etag),
        sequencer=str(fields.get("sequencer") or ""),
        size=size if isinstance(size, int) else 0,
        event_time=event_time,
    )


def is_safe_path(blob: str) -> bool:
    """Whether a blob's name means the same after one decoding, and on a file system."""
    return len(blob) <= MAX_BLOB_NAME_LENGTH and not any(
        _DOT_SEGMENT.search(name) or "\\" in name or _CONTROL.search(name)
        for name in (blob, unquote(blob))
    )


def watching(pipelines: Iterable[Pipeline], container: str, blob: str) -> Pipeline | None:
    """The one pipeline whose landing zone the blob lies in, if any."""
    return next((each for each in pipelines if each.watches(container, blob)), None)


def parse_blob_address(address: str, account_url: str) -> tuple[str, str]:
    """(container, blob) of a blob's URL in the account at `account_url`, or of `container/path`.

    Raises:
        InvalidEvent: it is neither.
    """
    path = address
    if "://" in address:
        base = urlsplit(account_url)
        root = base.path.rstrip("/") + "/"
        try:
            url = urlsplit(address)
        except ValueError as error:
            raise InvalidEvent(f"the address is no URL: {error}") from None
        if url.netloc != base.netloc or not url.path.startswith(root):
            # Without the query: it can be a shared access signature.
            raise InvalidEvent(
                f"{url.scheme}://{url.hostname}{url.path} is not in the account {account_url}"
            )
        path = unquote(url.path.removeprefix(root))
    container, _, blob = path.lstrip("/").partition("/")
    if not container or not blob:
        raise InvalidEvent(f"{address!r} names no blob: give its URL, or container/path")
    return container, blob
