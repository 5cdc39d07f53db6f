"""Operations of the Blob service, as requests, and their answers. Pure: no I/O.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
"""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import unquote

from localazure.storage_client.endpoint import Answer, Request

BLOBS_PER_PAGE: Final = 5000
"""The service's own limit."""
_METADATA: Final = "x-ms-meta-"
_MARKED: Final = {"if-none-match": "*"}


@dataclass(frozen=True)
class Blob:
    """One version of a blob."""

    name: str
    size: int
    """Bytes."""
    etag: str
    """Without quotes."""
    modified: datetime
    path: str = ""
    """The name relative to the folder that was listed; for a single blob, its last segment."""
    kind: str = ""
    """`BlockBlob`, `AppendBlob` or `PageBlob`."""
    content_type: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)


@dataclass(frozen=True)
class Page:
    """A page of a listing.

    Attributes:
        prefixes: the names up to a delimiter, if one was given.
        marker: of the next page; empty on the last one.
    """

    blobs: list[Blob]
    prefixes: list[str]
    marker: str


def create_container(name: str) -> Request:
    """Create a container; a conflict if it exists."""
    return Request("PUT", name, {"restype": "container"})


def upload(
    path: str,
    content: bytes,
    *,
    kind: str = "BlockBlob",
    headers: Mapping[str, str] | None = None,
    must_be_new: bool = False,
) -> Request:
    """Write a block blob, or create an empty `AppendBlob`."""
    condition = _MARKED if must_be_new else {}
    return Request(
        "PUT", path, headers={"x-ms-blob-type": kind, **condition, **(headers or {})}, body=content
    )


def stage_block(path: str, block: str, content: bytes) -> Request:
    """Upload a block of a block blob; all ids of a blob must have the same length."""
    return Request("PUT", path, {"comp": "block", "blockid": _encode(block)}, body=content)


def commit_blocks(
    path: str, blocks: Iterable[str], headers: Mapping[str, str] | None = None
) -> Request:
    """Commit staged blocks as a block blob."""
    latest = "".join(f"<Latest>{_encode(block)}</Latest>" for block in blocks)
    body = f"<BlockList>{latest}</BlockList>".encode()
    return Request("PUT", path, {"comp": "blocklist"}, headers or {}, body)


def list_blocks(path: str) -> Request:
    """List the committed and the staged blocks of a blob."""
    return Request("GET", path, {"comp": "blocklist", "blocklisttype": "all"})


def parse_blocks(answer: Answer) -> tuple[dict[str, int], dict[str, int]]:
    """The sizes in bytes of committed and of staged blocks, by id and in order."""
    document = ET.fromstring(answer.body)  # noqa: S314 - from the account itself

    def sizes(kind: str) -> dict[str, int]:
        return {
            base64.b64decode(block.findtext("Name") or "").decode(): int(
                block.findtext("Size") or 0
            )
            for block in document.iterfind(f"{kind}/Block")
        }

    return sizes("CommittedBlocks"), sizes("UncommittedBlocks")


def append(path: str, content: bytes, *, position: int) -> Request:
    """Append to a blob that has `position` bytes; a precondition that fails if it has others."""
    headers = {"x-ms-blob-condition-appendpos": str(position)}
    return Request("PUT", path, {"comp": "appendblock"}, headers, content)


def properties(path: str) -> Request:
    """The properties of a blob, as headers; see `parse_properties`."""
    return Request("HEAD", path)


def download(path: str, *, etag: str = "") -> Request:
    """Read a blob; with an ETag, exactly this version of it."""
    return Request("GET", path, headers={"if-match": f'"{etag}"'} if etag else {})


def parse_properties(name: str, headers: Mapping[str, str]) -> Blob:
    """The properties of a blob in the headers of an answer."""
    return Blob(
        name,
        int(headers["Content-Length"]),
        headers["ETag"].strip('"'),
        parsedate_to_datetime(headers["Last-Modified"]),
        kind=headers.get("x-ms-blob-type", ""),
        content_type=headers.get("Content-Type", ""),
        metadata={
            header[len(_METADATA) :]: value
            for header, value in headers.items()
            if header.lower().startswith(_METADATA)
        },
    )


def metadata_headers(metadata: Mapping[str, str]) -> dict[str, str]:
    """The headers that set a blob's metadata."""
    return {f"{_METADATA}{name}": value for name, value in metadata.items()}


def copy(path: str, source: str, headers: Mapping[str, str] | None = None) -> Request:
    """Copy a blob from a URL."""
    return Request("PUT", path, headers={"x-ms-copy-source": source, **(headers or {})})


def delete(path: str) -> Request:
    """Delete a blob."""
    return Request("DELETE", path)


def list_blobs(
    container: str,
    prefix: str = "",
    *,
    marker: str = "",
    delimiter: str = "",
    size: int = BLOBS_PER_PAGE,
    with_metadata: bool = False,
) -> Request:
    """A page of the blobs whose names start with a prefix, in the order of their names."""
    query = {
        "restype": "container",
        "comp": "list",
        "maxresults": str(size),
        "prefix": prefix,
        "marker": marker,
        "delimiter": delimiter,
        "include": "metadata" if with_metadata else "",
    }
    return Request("GET", container, {name: value for name, value in query.items() if value})


def parse_page(body: bytes) -> Page:
    """The page in the body of an answer."""
    document = ET.fromstring(body)  # noqa: S314 - from the account itself
    return Page(
        [_listed(blob) for blob in document.iterfind("Blobs/Blob")],
        [_name(prefix) for prefix in document.iterfind("Blobs/BlobPrefix")],
        document.findtext("NextMarker") or "",
    )


def _listed(blob: ET.Element) -> Blob:
    values = blob.find("Properties")
    assert values is not None
    return Blob(
        _name(blob),
        int(values.findtext("Content-Length") or 0),
        (values.findtext("Etag") or "").strip('"'),
        parsedate_to_datetime(values.findtext("Last-Modified") or ""),
        kind=values.findtext("BlobType") or "",
        content_type=values.findtext("Content-Type") or "",
        metadata={each.tag: each.text or "" for each in blob.iterfind("Metadata/*")},
    )


def _name(item: ET.Element) -> str:
    name = item.find("Name")
    assert name is not None
    # The service percent-encodes a name with characters that XML does not allow.
    return unquote(name.text or "") if name.get("Encoded") == "true" else name.text or ""


def _encode(block: str) -> str:
    return base64.b64encode(block.encode()).decode()
