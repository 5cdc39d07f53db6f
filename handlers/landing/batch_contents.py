"""Which blobs are a batch: data, without what was quarantined, or the uploader's manifest.

Accounts with a hierarchical namespace list a folder as a blob with the metadata `hdi_isfolder`. In
other accounts, tools write an empty blob `name/`, or `name_$folder$` (Hadoop).
https://learn.microsoft.com/azure/storage/blobs/storage-blobs-list

An uploader's manifest, `source.manifest`, replaces the listing: JSON Lines, one object per file, in
ascending order of path (by code points, like `LC_ALL=C sort`):
`{"path": "7/1.png", "size": 123, "md5": "<hex>", "etag": "0x8D"}`. Paths are relative to the folder
of the batch: the zone's prefix, or the partition. One of `md5` and `etag` may be missing or null.
Other keys are allowed and ignored.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast
from urllib.parse import quote, unquote

from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError

from handlers.landing.blob_events import (
    MAX_BLOB_NAME_LENGTH,
    MAX_PART_BYTES,
    is_safe_path,
    normal_etag,
)
from handlers.platform import record_store
from handlers.platform.activity_adapter import activity
from handlers.platform.blob_pages import ListedBlob
from handlers.platform.clients import Clients
from handlers.platform.manifests import read_lines_of
from handlers.platform.run_records import read_bad_files
from orchestrations.configuration.partitions import Partition, select
from orchestrations.configuration.pipeline import Pipeline, Source
from orchestrations.contracts.base import Done
from orchestrations.contracts.datasets import Dataset, QuarantineFiles
from orchestrations.errors import DataChanged, InvalidManifest

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, ContainerClient

_HADOOP_SUFFIX = "_$folder$"
_FOLDER = "quarantine"
_PARTITION = "partition"
# About 60,000 lines.
PIECE_BYTES = 8 * 1024 * 1024
_MD5 = re.compile(r"[0-9a-f]{32}")


def is_stub_name(name: str, size: int) -> bool:
    """Whether a blob of this name and size in bytes stands for a folder."""
    return size == 0 and (name.endswith(("/", _HADOOP_SUFFIX)))


def is_directory_stub(name: str, size: int, metadata: Mapping[str, str] | None) -> bool:
    """Whether a blob stands for a folder, by its name, size and metadata.

    Metadata keys are compared without case, since services and tools write both.
    """
    fields = {key.lower(): value for key, value in (metadata or {}).items()}
    return fields.get("hdi_isfolder", "").lower() == "true" or is_stub_name(name, size)


def is_data(blob: ListedBlob, source: Source, path: str) -> bool:
    """Whether a listed blob is data of a pipeline; `path` is its name below the source's prefix."""
    return (
        not blob.is_directory
        and not is_stub_name(path, blob.size)
        and source.takes(path)
        and is_safe_path(blob.name)
    )


def prefixes_to_list(
    clients: Clients, pipeline: Pipeline, partition: str | None, *, now: datetime
) -> Sequence[str]:
    """The prefixes, in the container, of the blobs of a batch's dataset.

    Only the pipeline's prefix, if every blob belongs to the dataset.
    """
    source, section = pipeline.source, pipeline.dataset
    own = None if partition is None else source.partition(partition)
    if section.newest_partitions is None and section.last_days is None:
        return [source.prefix + ("" if own is None else own.prefix)]
    taken = select(
        list_partitions(clients, pipeline),
        own=own,
        now=now,
        newest=section.newest_partitions,
        last_days=section.last_days,
    )
    return [source.prefix + each.prefix for each in taken]


def list_partitions(clients: Clients, pipeline: Pipeline) -> Iterator[Partition]:
    """Every partition of a zone; lists only its folders."""
    source = pipeline.source
    container = clients.blobs.get_container_client(source.container)
    for folder in _folders(container, source.prefix, source.partition_levels()):
        path = folder.removeprefix(source.prefix)
        partition = source.partition_of(path)
        if partition is not None and partition.prefix == path:
            yield partition


def _folders(container: ContainerClient, prefix: str, levels: int) -> Iterator[str]:
    if levels == 0:
        yield prefix
        return
    from azure.storage.blob import BlobPrefix  # noqa: PLC0415 - see handlers.platform.clients

    for item in container.walk_blobs(name_starts_with=prefix, delimiter="/"):
        if isinstance(item, BlobPrefix):
            yield from _folders(container, item.name, levels - 1)


@activity
def quarantine_files(clients: Clients, request: QuarantineFiles) -> Done:
    """Leave the files in the run's error.json out of every later manifest.

    Files are identified by path and ETag, so an overwritten file is included again.
    """
    reasons = read_bad_files(clients, request.run)
    keep_quarantine(clients, request.pipeline, request.run, request.run, request.dataset, reasons)
    return Done()


def keep_quarantine(
    clients: Clients,
    pipeline: str,
    record: str,
    run: str,
    dataset: Dataset,
    reasons: Mapping[str, str],
) -> None:
    """Leave files of a run's dataset out of manifests until they are overwritten.

    `record` is the name of the record; `reasons` maps a path in the manifest to a reason.
    """
    entries = [
        {
            "path": line.path,
            "etag": line.etag or line.md5,  # an uploader's manifest may have no ETags
            "reason": reasons[line.path],
            "run": run,
        }
        for line in read_lines_of(clients, dataset, reasons)
    ]
    metadata = {} if dataset.partition is None else {_PARTITION: quote(dataset.partition)}
    name = f"{_FOLDER}/{pipeline}/{record}.json"
    record_store.replace(clients.records, name, entries, metadata)


def read_quarantine(clients: Clients, pipeline: str) -> dict[tuple[str, str], str]:
    """(path, ETag) → reason for every file that is left out."""
    return {
        (entry["path"], entry["etag"]): f"{entry['reason']} (run {entry['run']})"
        for entries in record_store.read_all(clients.records, f"{_FOLDER}/{pipeline}/")
        for entry in entries
    }


def list_quarantined(clients: Clients) -> Mapping[str, Mapping[str | None, datetime]]:
    """Pipeline → partition → when files of it were last put into quarantine.

    None stands for the whole zone.
    """
    quarantined: dict[str, dict[str | None, datetime]] = defaultdict(dict)
    blobs = clients.records.list_blobs(name_starts_with=f"{_FOLDER}/", include=["metadata"])
    for blob in blobs:
        pipeline = blob.name.split("/")[1]
        kept = (blob.metadata or {}).get(_PARTITION)
        partition = None if kept is None else unquote(kept)
        times = quarantined[pipeline]
        times[partition] = max(blob.last_modified, times.get(partition, blob.last_modified))
    return quarantined


class Position(NamedTuple):
    """A position between two lines."""

    offset: int
    """Bytes from the beginning of the manifest."""
    lines: int
    """The number of lines before the position."""
    path: str
    """The path of the line before the position."""

    @classmethod
    def parse(cls, marker: str | None) -> Self:
        """Parse the marker of a piece; None is the beginning."""
        return cls(0, 0, "") if marker is None else cls(*json.loads(marker))

    def to_marker(self) -> str:
        """Encode the position as the marker of a piece."""
        return json.dumps(self)


@dataclass(frozen=True)
class UploadedManifest:
    """One version of an uploader's manifest."""

    name: str
    folder: str
    """The batch's folder in the container."""
    etag: str
    written_at: str
    """ISO 8601."""


def find(clients: Clients, pipeline: Pipeline, partition: str | None) -> UploadedManifest | None:
    """The current manifest of a zone or partition; None if there is none."""
    source = pipeline.source
    own = None if partition is None else source.partition(partition)
    path = source.marker_path(own)
    if path is None:
        return None
    folder = source.prefix + ("" if own is None else own.prefix)
    blob = clients.blobs.get_blob_client(source.container, source.prefix + path)
    try:
        properties = blob.get_blob_properties()
    except ResourceNotFoundError:
        return None
    return UploadedManifest(
        blob.blob_name, folder, properties.etag, properties.last_modified.isoformat()
    )


def read_piece(
    clients: Clients, pipeline: Pipeline, manifest: UploadedManifest, marker: str | None
) -> tuple[Sequence[ListedBlob], str | None]:
    """The blobs of the next lines, and the position after these lines.

    Raises:
        DataChanged: the manifest was overwritten or deleted after it was found.
        InvalidManifest: a line breaks the rules; the message names the blob and the line.
    """
    container = pipeline.source.container
    begin = Position.parse(marker)
    content = _read(
        clients.blobs.get_blob_client(container, manifest.name), manifest.etag, begin.offset
    )
    is_over = len(content) < PIECE_BYTES
    end = len(content) if is_over else content.rfind(b"\n") + 1
    lines = content[:end].split(b"\n")
    if not lines[-1]:
        lines.pop()
    written_at = datetime.fromisoformat(manifest.written_at)
    blobs: list[ListedBlob] = []
    number, latest = begin.lines, begin.path
    for line in lines:
        number += 1
        try:
            path, blob = _parse(line, manifest.folder, written_at)
            if number > 1 and path <= latest:
                raise ValueError(  # noqa: TRY301 - one exit for all reasons
                    f"path {path!r} does not come after {latest!r}: sort the lines by path, "
                    "each path once"
                )
        except (ValueError, RecursionError) as error:
            raise InvalidManifest(f"{container}/{manifest.name}, line {number}: {error}") from error
        latest = path
        blobs.append(blob)
    if not is_over and not lines:
        raise InvalidManifest(
            f"{container}/{manifest.name}, line {number + 1}: longer than {PIECE_BYTES} bytes"
        )
    after = Position(begin.offset + end, number, latest)
    return blobs, None if is_over else after.to_marker()


def _read(blob: BlobClient, etag: str, offset: int) -> bytes:
    condition = record_store.unchanged(etag)
    try:
        if offset == 0 and not blob.get_blob_properties(**condition).size:
            return b""  # a range of an empty blob cannot be requested
        return blob.download_blob(offset=offset, length=PIECE_BYTES, **condition).readall()
    except (ResourceModifiedError, ResourceNotFoundError) as error:
        raise DataChanged(f"{blob.container_name}/{blob.blob_name} was written again") from error


def _parse(line: bytes, folder: str, written_at: datetime) -> tuple[str, ListedBlob]:
    """The path and the blob of a line.

    Raises:
        ValueError: the line breaks the rules; the message names the key and its value.
    """
    document: Any = record_store.loads_unique(line)
    if not isinstance(document, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 - one type for all reasons
    fields = cast("dict[str, object]", document)
    path, size = fields.get("path"), fields.get("size")
    md5, etag = fields.get("md5"), fields.get("etag")
    if not isinstance(path, str) or not path or path.startswith("/") or path.endswith("/"):
        raise ValueError(f"path {path!r} is not the path of a file below the batch's folder")
    name = folder + path
    if not path.isprintable() and not _is_unicode(path):
        raise ValueError(f"path {path!r} is not Unicode")
    if not is_safe_path(name):
        raise ValueError(
            f"path {path!r} is not the name of a blob that can be a file: at most "
            f"{MAX_BLOB_NAME_LENGTH} characters, and {MAX_PART_BYTES} bytes between two slashes; "
            "no control characters, no backslash, no dot segments"
        )
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"size {size!r} is not a number of bytes")
    if md5 is not None and not (isinstance(md5, str) and _MD5.fullmatch(md5)):
        raise ValueError(f"md5 {md5!r} is neither 32 lower-case hex digits nor null")
    if etag is not None and not isinstance(etag, str):
        raise ValueError(f"etag {etag!r} is not a string")
    if not md5 and not etag:
        raise ValueError("has neither md5 nor etag: nothing says what the file holds")
    found = ListedBlob(name, size, normal_etag(etag or ""), md5, written_at, is_directory=False)
    return path, found


def _is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: JSON may escape a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
