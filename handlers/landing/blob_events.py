"""Parse and check blob events. Pure. An event is an untrusted hint.

Source: https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, cast
from urllib.parse import unquote, urlsplit

from handlers.platform.event_envelope import EventEnvelope
from orchestrations.configuration.pipeline import Pipeline
from orchestrations.errors import InvalidEvent

Change = Literal["created", "renamed", "directory-renamed", "deleted"]
# In accounts with a hierarchical namespace, writers such as Spark commit by a rename: data that is
# renamed into a zone has landed. The app does not subscribe to other types (DirectoryDeleted etc.).
CHANGES: Mapping[str, Change] = {
    "Microsoft.Storage.BlobCreated": "created",
    "Microsoft.Storage.BlobRenamed": "renamed",
    "Microsoft.Storage.DirectoryRenamed": "directory-renamed",
    "Microsoft.Storage.BlobDeleted": "deleted",
}
_SUBJECT = re.compile(r"^/blobServices/default/containers/(?P<container>[^/]+)/blobs/(?P<blob>.+)$")
_ACCOUNT = re.compile(r"/storageAccounts/([a-z0-9]{3,24})$")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DOT_SEGMENT = re.compile(r"(^|/)\.{1,2}(/|$)")
_UNSAFE_CHARACTER = re.compile(r"[\\\x00-\x1f\x7f]")
MAX_BLOB_NAME_LENGTH = 1024  # Azure Storage's limit
# Linux's limits on a node: 255 bytes for a part of a path, and 4,096 for the path, of which the
# folder of a job's input takes some hundred.
MAX_PART_BYTES = 255
MAX_PATH_BYTES = 3_500
# No name of so many characters is too long in UTF-8, which takes up to four bytes for one.
_SURELY_SHORT = MAX_PART_BYTES // 4


@dataclass(frozen=True, kw_only=True)
class BlobEvent:
    """An event about a blob; a `directory-renamed` event is about all blobs in the directory."""

    event_id: str
    change: Change
    account: str
    container: str
    blob: str
    """The name; after a rename, the new name."""
    etag: str
    """Empty for renames and deletions, whose events have no ETag."""
    size: int
    """Bytes; 0 if the event has no size."""
    time: datetime
    """Time of the change by the storage service's clock, in UTC."""
    traceparent: str | None = None
    """The sender's trace context, if it traces."""


def normal_etag(etag: str) -> str:
    """An ETag without the quotes that some responses of Azure have."""
    return etag.strip('"')


def parse_blob_event(event: EventEnvelope) -> BlobEvent:
    """Parse and check one event.

    Raises:
        InvalidEvent: the event is of another type, lacks a field, or has an unsafe path (`..`,
            encoded dots, backslashes, control characters).
    """
    change = CHANGES.get(event.type)
    if change is None:
        raise event.refusal(
            f"type {event.type!r} is none of {', '.join(CHANGES)}", cause="unknown-type"
        )
    match = _SUBJECT.match(event.subject)
    if match is None:
        raise event.refusal(f"subject {event.subject!r} names no blob", cause="no-blob-named")
    account = _ACCOUNT.search(event.source)
    if account is None:
        raise event.refusal(
            f"topic {event.source!r} is not a storage account", cause="no-storage-account"
        )
    blob = match["blob"]
    if not is_safe_path(blob):
        raise event.refusal(
            f"blob name {blob!r} holds a dot segment, a backslash or a control character, or is "
            f"longer than {MAX_BLOB_NAME_LENGTH} characters, or than {MAX_PART_BYTES} bytes "
            "between two slashes: it cannot be a file on a node; rename it",
            cause="unsafe-blob-name",
        )
    if not isinstance(event.data, Mapping):
        raise event.refusal("data is not an object", cause="no-data")
    fields = cast("Mapping[str, Any]", event.data)
    etag = fields.get("eTag")
    if change == "created" and (not isinstance(etag, str) or not etag):
        raise event.refusal("data.eTag is missing", cause="no-etag")
    size = fields.get("contentLength")
    return BlobEvent(
        event_id=event.id,
        change=change,
        account=account[1],
        container=match["container"],
        blob=blob,
        etag=normal_etag(etag) if isinstance(etag, str) else "",
        size=size if isinstance(size, int) else 0,
        time=event.time,
        traceparent=event.traceparent,
    )


def is_safe_path(blob: str) -> bool:
    """Whether a blob can be a file of its name on a node, and is safe there, also URL-decoded.

    The check runs for every event and every listed blob, so most names take only one search.
    """
    if len(blob) > _SURELY_SHORT and _is_too_long(blob):
        return False
    if _is_unsafe(blob):
        return False
    return "%" not in blob or not _is_unsafe(unquote(blob))


def _is_too_long(name: str) -> bool:
    if name.isascii():
        if len(name) <= MAX_PART_BYTES:
            return False
        encoded = name.encode("ascii")
    else:
        encoded = name.encode("utf-8", "surrogatepass")
    return (
        len(name) > MAX_BLOB_NAME_LENGTH
        or len(encoded) > MAX_PATH_BYTES
        or max(map(len, encoded.split(b"/"))) > MAX_PART_BYTES
    )


def why_unsafe(blob: str) -> str | None:
    """Why a blob's name is not safe, for people; None if it is."""
    if is_safe_path(blob):
        return None
    if _is_too_long(blob):
        return (
            f"its name is longer than {MAX_BLOB_NAME_LENGTH} characters, or than {MAX_PART_BYTES} "
            "bytes between two slashes: it cannot be a file on a node"
        )
    decoded = "" if _is_unsafe(blob) else " after percent-decoding, which readers may do"
    name = unquote(blob) if decoded else blob
    match = _UNSAFE_CHARACTER.search(name)
    if match is None:
        what = "a dot segment (. or ..)"
    elif match[0] == "\\":
        what = "a backslash (if the service keeps it as a slash, ask for the name with a slash)"
    else:
        what = f"the control character {match[0]!r}"
    return f"its name has {what}{decoded}: it is not safe as a path of a file"


def _is_unsafe(name: str) -> bool:
    if _UNSAFE_CHARACTER.search(name):
        return True
    return ("/." in name or name.startswith(".")) and _DOT_SEGMENT.search(name) is not None


def watching(pipelines: Iterable[Pipeline], container: str, blob: str) -> Pipeline | None:
    """The pipeline whose landing zone contains the blob, if there is one; zones are disjoint."""
    return next((each for each in pipelines if each.watches(container, blob)), None)


def parse_blob_address(address: str, account_url: str) -> tuple[str, str]:
    """Parse a blob's URL in the account at `account_url`, or `container/path`.

    Raises:
        InvalidEvent: the address is neither.
    """
    path = address
    # A container's name has no colon, so this cannot be `container/path`.
    if _URL.match(address):
        base = urlsplit(account_url)
        root = base.path.rstrip("/") + "/"
        try:
            url = urlsplit(address)
        except ValueError as error:
            raise InvalidEvent(f"the address is not a URL: {error}") from None
        if url.netloc != base.netloc or not url.path.startswith(root):
            # Without the query, which can be a shared access signature.
            raise InvalidEvent(
                f"{url.scheme}://{url.hostname}{url.path} is not in the account {account_url}"
            )
        path = unquote(url.path.removeprefix(root))
    container, _, blob = path.lstrip("/").partition("/")
    if not container or not blob:
        raise InvalidEvent(f"{address!r} names no blob: give its URL, or container/path")
    return container, blob
