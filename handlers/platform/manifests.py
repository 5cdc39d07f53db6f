"""The files of a frozen manifest: written once, read as a stream or by path."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from handlers.platform.clients import Clients
from orchestrations.contracts.datasets import Dataset
from orchestrations.contracts.manifest import (
    MLTABLE,
    ManifestLine,
    decode_line,
    path_of,
)

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, ContainerClient

MANIFEST_FILE = "manifest.jsonl"
BLOCK_BYTES = 4 * 1024 * 1024
# A line is at most 13 KB: a path of 1,024 characters, each up to twelve bytes when escaped.
LONGEST_LINE_BYTES = 16 * 1024
SCANNED_BYTES = 64 * 1024
CHUNK_BYTES = 1024 * 1024
# Shorter than the shortest retention of manifests, and longer than a job may run (21 days).
RENEWED_AFTER = timedelta(days=30)


def manifest_folder(pipeline: str, version: str) -> str:
    """The folder of a dataset version's files."""
    return f"manifests/{pipeline}/{version}"


@dataclass(frozen=True)
class ManifestWriter:
    """Writes a manifest and its `MLTable`, unless they exist.

    Existing files are never changed, since jobs may read them. The manifest is committed last, so a
    folder with a manifest is complete. Concurrent writers of the same version stage separate
    blocks, since the ETags in their lines may differ.
    """

    records: ContainerClient
    folder: str
    """See `manifest_folder`."""
    writer: str
    """Prefix of the block ids: 16 characters, since the service requires ids of equal length."""

    @property
    def is_written(self) -> bool:
        """Whether the manifest exists."""
        return self._manifest.exists()

    def adopt(self, *, at: datetime) -> bool:
        """Whether the manifest exists. If it is old, its write time is renewed at a moment.

        Retention deletes a manifest that is old and that no record names yet. It is not renewed
        while it is new, because a change breaks off a download.
        """
        if not self.is_written:
            return False
        properties = self._manifest.get_blob_properties()
        if properties.last_modified < at - RENEWED_AFTER:
            try:
                self._manifest.set_blob_metadata(properties.metadata)
            except ResourceNotFoundError:  # deleted in between
                return False
        return True

    def stage(self, chunks: Iterable[bytes], *, blocks: int = 0) -> int:
        """Stage whole lines in order of path; they are invisible until `commit`.

        `blocks` is the number of blocks staged before; returns the new number.
        """
        for block in _split_into_blocks(chunks):
            self._manifest.stage_block(self._block_id(blocks), block)
            blocks += 1
        return blocks

    def commit(self, blocks: int) -> None:
        """Create the manifest from the staged blocks, unless it exists."""
        from azure.storage.blob import BlobBlock  # noqa: PLC0415 - see handlers.platform.clients

        with contextlib.suppress(ResourceExistsError):
            self.records.upload_blob(f"{self.folder}/MLTable", MLTABLE.encode(), overwrite=False)
        staged = [BlobBlock(self._block_id(number)) for number in range(blocks)]
        try:
            self._manifest.commit_block_list(staged, match_condition=MatchConditions.IfMissing)
        except HttpResponseError:  # another writer's commit discards our blocks
            if not self.is_written:
                raise

    @property
    def _manifest(self) -> BlobClient:
        return self.records.get_blob_client(f"{self.folder}/{MANIFEST_FILE}")

    def _block_id(self, number: int) -> str:
        return f"{self.writer}{number:08}"


def _split_into_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for chunk in chunks:
        block += chunk
        while len(block) >= BLOCK_BYTES:
            with memoryview(block) as view:
                full = bytes(view[:BLOCK_BYTES])
            yield full
            del block[:BLOCK_BYTES]
    if block:
        yield bytes(block)


def has_manifest(clients: Clients, dataset: Dataset) -> bool:
    """Whether retention has not removed a dataset's manifest."""
    return _manifest_blob(clients, dataset).exists()


def delete_manifest(clients: Clients, pipeline: str, version: str) -> None:
    """Delete the files of a dataset version; the manifest first, so that no half of it is used."""
    folder = manifest_folder(pipeline, version) + "/"
    others = clients.records.list_blob_names(name_starts_with=folder)
    for name in (folder + MANIFEST_FILE, *others):
        with contextlib.suppress(ResourceNotFoundError):
            clients.records.delete_blob(name)


def read_chunks(clients: Clients, folder: str) -> Iterator[bytes]:
    """The encoded lines of the frozen manifest in a folder, in chunks of whole lines."""
    return _chunks(clients.records.get_blob_client(f"{folder}/{MANIFEST_FILE}"))


def read_lines_of(
    clients: Clients, dataset: Dataset, paths: Collection[str]
) -> Iterator[ManifestLine]:
    """The lines of the given paths, in order of path; other lines are not parsed."""
    for chunk in read_chunks(clients, dataset.manifest_path):
        for line in chunk.splitlines():
            if path_of(line) in paths:
                yield decode_line(line)


def read_manifest_from(clients: Clients, dataset: Dataset, path: str) -> Iterator[ManifestLine]:
    """The lines of a frozen manifest from `path` on."""
    blob = _manifest_blob(clients, dataset)
    low, high = _search(blob, path)
    if low < high:
        for chunk in _chunks(blob, offset=low):
            for line in chunk.splitlines():
                if path_of(line) >= path:
                    yield decode_line(line)


def find_line(clients: Clients, dataset: Dataset, path: str) -> ManifestLine | None:
    """The line of a path, or None if the manifest has none, or retention removed the manifest.

    Does a binary search with range reads: 16 reads for a manifest of ten million lines.
    """
    blob = _manifest_blob(clients, dataset)
    try:
        low, high = _search(blob, path)
    except ResourceNotFoundError:
        return None
    if high == low:
        return None
    piece = _read(blob, low, high - low + LONGEST_LINE_BYTES)
    for line in piece.splitlines(keepends=True):
        if line.endswith(b"\n") and path_of(line) == path:
            return decode_line(line)
    return None


def _search(blob: BlobClient, path: str) -> tuple[int, int]:
    """Bounds of the offset of the first line with that path or a greater one."""
    # Lines before `low` have smaller paths; the wanted line, if any, begins before `high`.
    low, high = 0, blob.get_blob_properties().size
    while high - low > SCANNED_BYTES:
        middle = (low + high) // 2
        piece = _read(blob, middle, 2 * LONGEST_LINE_BYTES)
        begin = piece.find(b"\n") + 1
        line = piece[begin : piece.find(b"\n", begin) + 1]
        if not line:  # the last line begins before `middle`
            high = middle
        elif path_of(line) <= path:
            low = middle + begin
        else:
            high = middle + begin
    return low, high


def _manifest_blob(clients: Clients, dataset: Dataset) -> BlobClient:
    return clients.records.get_blob_client(f"{dataset.manifest_path}/{MANIFEST_FILE}")


def _read(blob: BlobClient, offset: int, length: int) -> bytes:
    return blob.download_blob(offset=offset, length=length).readall()


def _chunks(blob: BlobClient, *, offset: int = 0) -> Iterator[bytes]:
    """Whole lines, about `CHUNK_BYTES` at a time; the SDK's first chunk has 32 MiB."""
    rest = b""
    for given in blob.download_blob(offset=offset or None).chunks():
        for begin in range(0, len(given), CHUNK_BYTES):
            lines, newline, rest = (rest + given[begin : begin + CHUNK_BYTES]).rpartition(b"\n")
            yield lines + newline
    if rest:
        yield rest
