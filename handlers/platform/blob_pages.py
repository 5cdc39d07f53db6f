"""List Blobs, one page per call, and the fields that Landfall needs from it.

Requests use the SDK's HTTP pipeline (credentials, retries, logging). The SDK creates an object with
thirty attributes per blob, which is many times slower than this parser (docs/benchmarks.md). The
service answers in XML or, if it can, as an Apache Arrow stream.

Source: https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import quote, unquote
from xml.parsers import expat

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    map_error,
)
from azure.core.rest import HttpRequest

from orchestrations.errors import TransientError

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

ARROW_STREAM = "application/vnd.apache.arrow.stream"
# Hadoop's and Azure's drivers set this metadata on a blob that stands for a directory.
DIRECTORY_METADATA = "hdi_isfolder"
_COLUMNS = frozenset(
    {"Name", "Last-Modified", "Etag", "Content-Length", "Content-MD5", "ResourceType", "NextMarker"}
)
# Users choose the names of the elements below these, so one may be called "Etag".
_FREE_NAMES = frozenset({"Metadata", "Tags", "OrMetadata"})
_OK = 200
_ERRORS = {401: ClientAuthenticationError, 404: ResourceNotFoundError}


class ListedBlob(NamedTuple):
    """A blob in a listing."""

    name: str
    size: int
    etag: str
    """Without quotes."""
    md5: str | None
    """Hex, or None if the service has none."""
    last_modified: datetime
    is_directory: bool
    """Whether the blob only stands for a directory and holds no data."""


@dataclass(frozen=True)
class BlobPage:
    """One response of List Blobs."""

    blobs: Sequence[ListedBlob]
    prefixes: Sequence[str]
    """The common prefixes up to the delimiter, if the request had one."""
    next_marker: str | None
    """The continuation token; None on the last page."""
    is_hierarchical: bool
    """Whether the account has a hierarchical namespace, whose listings are not in order of name."""


def parse_page(chunks: Iterable[bytes], content_type: str) -> BlobPage:
    """Parse a response in either format. XML is streamed, never whole in memory.

    Raises:
        TransientError: the response is malformed; it may have been cut off.
    """
    try:
        is_arrow = ARROW_STREAM in content_type
        return parse_arrow(b"".join(chunks)) if is_arrow else parse_xml(chunks)
    except (expat.ExpatError, ValueError, KeyError, TypeError) as error:
        raise TransientError(f"the answer of List Blobs is malformed: {error!r}") from error


def parse_xml(chunks: Iterable[bytes]) -> BlobPage:
    """Parse a response in XML.

    Raises:
        expat.ExpatError: the response is not XML, or was cut off.
        ValueError, KeyError: a blob lacks an element, or an element has an invalid value.
    """
    reader = _XmlReader()
    for chunk in chunks:
        reader.parser.Parse(chunk)
    reader.parser.Parse(b"", True)  # noqa: FBT003 - expat takes it by position only
    return BlobPage(reader.blobs, reader.prefixes, reader.next_marker, reader.is_hierarchical)


class _XmlReader:
    """Collects `_COLUMNS`, and does as little as possible for all other elements."""

    def __init__(self) -> None:
        self.blobs: list[ListedBlob] = []
        self.prefixes: list[str] = []
        self.next_marker: str | None = None
        self.is_hierarchical = False
        self._fields: dict[str, str] = {}
        self._text: list[str] = []
        self._is_encoded = False
        self._is_directory = False
        self._depth = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self._read_properties()

    def _read_properties(self) -> None:
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag in _COLUMNS:
            self._text.clear()
            self.parser.CharacterDataHandler = self._text.append
            if attributes:  # only for a name that XML cannot hold
                self._is_encoded = attributes.get("Encoded") == "true"
        elif tag in _FREE_NAMES:
            self._depth = 0
            self.parser.StartElementHandler = self._start_free
            self.parser.EndElementHandler = self._end_free

    def _end(self, tag: str) -> None:
        if tag in _COLUMNS:
            self.parser.CharacterDataHandler = None
            self._fields[tag] = "".join(self._text)
        elif tag == "Blob":
            self._add_blob()
        elif tag == "BlobPrefix":
            self.prefixes.append(self._name())
            self._fields.clear()
        elif tag == "EnumerationResults":
            self.next_marker = self._fields.get("NextMarker") or None

    def _start_free(self, tag: str, _: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and tag.lower() == DIRECTORY_METADATA:
            self._text.clear()
            self.parser.CharacterDataHandler = self._text.append

    def _end_free(self, tag: str) -> None:
        if self._depth == 0:
            self._read_properties()
            return
        if self._depth == 1 and tag.lower() == DIRECTORY_METADATA:
            self.parser.CharacterDataHandler = None
            self._is_directory = "".join(self._text).lower() == "true"
        self._depth -= 1

    def _name(self) -> str:
        name = self._fields["Name"]
        if self._is_encoded:
            self._is_encoded = False
            return unquote(name)
        return name

    def _add_blob(self) -> None:
        fields = self._fields
        kind = fields.get("ResourceType")
        if kind is not None:
            self.is_hierarchical = True
        self.blobs.append(
            ListedBlob(
                self._name(),
                int(fields["Content-Length"] or 0),
                fields["Etag"].strip('"'),
                _to_hex(fields.get("Content-MD5")),
                _parse_http_date(fields["Last-Modified"]),
                self._is_directory or kind == "directory",
            )
        )
        self._is_directory = False
        fields.clear()


def parse_arrow(content: bytes) -> BlobPage:
    """Parse a response that is an Apache Arrow stream. Its columns have the names of the elements.

    Raises:
        ValueError, KeyError, TypeError: it is not such a stream, or a column is missing.
    """
    # Imported only if the service answers in Arrow: it costs a cold start 20 ms.
    from nanoarrow import ArrayStream  # noqa: PLC0415 - see above
    from nanoarrow.ipc import InputStream  # noqa: PLC0415 - see above

    blobs: list[ListedBlob] = []
    prefixes: list[str] = []
    is_hierarchical = False
    with InputStream.from_readable(BytesIO(content)) as source, ArrayStream(source) as stream:
        metadata = cast("Mapping[bytes, bytes]", dict(stream.schema.metadata.items()))
        names = [field.name for field in stream.schema.fields]
        for batch in cast("Iterable[Any]", stream):  # its stub lacks `__next__`
            rows = len(batch)
            columns = {
                name: _column(batch.child(index), name)
                for index, name in enumerate(names)
                if name in _COLUMNS or name == "Metadata"
            }
            nothing: Sequence[Any] = [None] * rows
            kinds = columns.get("ResourceType", nothing)
            is_hierarchical = is_hierarchical or any(
                kind in ("file", "directory") for kind in kinds
            )
            for name, size, etag, md5, modified, kind, properties in zip(
                columns["Name"],
                columns.get("Content-Length", nothing),
                columns.get("Etag", nothing),
                columns.get("Content-MD5", nothing),
                columns.get("Last-Modified", nothing),
                kinds,
                columns.get("Metadata", nothing),
                strict=True,
            ):
                if kind == "blobprefix":
                    prefixes.append(name)
                    continue
                is_stub = (properties or {}).get(DIRECTORY_METADATA) == "true"
                blobs.append(
                    ListedBlob(
                        name,
                        size or 0,
                        etag.strip('"'),
                        _to_hex(md5) if isinstance(md5, str) else bytes(md5 or b"").hex() or None,
                        modified if modified.tzinfo else modified.replace(tzinfo=UTC),
                        is_stub or kind == "directory",
                    )
                )
    marker = metadata.get(b"NextMarker") or metadata.get(b"nextMarker") or b""
    return BlobPage(blobs, prefixes, marker.decode() or None, is_hierarchical)


def _column(values: Any, name: str) -> Sequence[Any]:
    if name != "Metadata":
        return values.to_pylist()
    # Each row of a map is a list of (key, value) entries; nanoarrow has no Python value for maps.
    offsets, entries = list(values.buffer(1)), values.child(0)
    keys, held = entries.child(0).to_pylist(), entries.child(1).to_pylist()
    return [
        dict(zip(keys[start:end], held[start:end], strict=True)) for start, end in pairwise(offsets)
    ]


def _to_hex(md5: str | None) -> str | None:
    return binascii.a2b_base64(md5).hex() if md5 else None


@lru_cache(maxsize=8192)  # an upload writes many blobs in one second
def _parse_http_date(text: str) -> datetime:
    return parsedate_to_datetime(text)


def list_page(
    container: ContainerClient,
    prefix: str,
    *,
    marker: str | None = None,
    start_from: str | None = None,
    delimiter: str | None = None,
) -> BlobPage:
    """Request one page of at most 5,000 blobs.

    A service that does not support `start_from`, the first name to list, lists from the beginning.

    Raises:
        azure.core.exceptions.HttpResponseError: the service refuses.
        TransientError: the response is malformed.
    """
    parameters = {
        "restype": "container",
        "comp": "list",
        "include": "metadata",
        "prefix": prefix,
        "marker": marker,
        "startFrom": start_from,
        "delimiter": delimiter,
    }
    request = HttpRequest(
        "GET",
        container.url,
        # Encoded here, since azure-core does not encode parameters.
        params={key: quote(value, safe="") for key, value in parameters.items() if value},
        headers={
            "x-ms-version": container.api_version,
            "Accept": f"{ARROW_STREAM},application/xml",
        },
    )
    # Without `stream`, the pipeline first parses the response into an element tree. The client has
    # no public access to its pipeline; a second pipeline would duplicate credentials and retries.
    answer = container._pipeline.run(request, stream=True)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    response = answer.http_response
    if response.status_code != _OK:
        response.read()
        map_error(response.status_code, response, _ERRORS)
        raise HttpResponseError(response=response)
    try:
        return parse_page(response.iter_bytes(), response.headers.get("Content-Type", ""))
    finally:
        response.close()  # leave the rest of a malformed response unread
