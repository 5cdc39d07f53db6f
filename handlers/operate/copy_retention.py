"""Deletes copies of blobs that no kept dataset version needs: app setting `KEEP_COPIES_DAYS`.

A pass over the copies of a pipeline begins once a day:

1. Note which dataset versions are kept.
2. Mark: read each version's manifest, and set a bit for each copy that it names. Two copies may
   share a bit; an unneeded one then stays until a pass that uses other digits of the names.
3. Delete the copies whose bit is not set, section by section, except copies written in the last
   `GRACE`, which a running freeze may have created.

A record is written after each section, and when the marks are stored: a process may die at any
time, and what it did since is repeated. A freeze that adopts a copy during a pass writes the copy's
metadata, which renews its write time and ETag; a copy is deleted only if its ETag is the listed
one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError

from handlers.landing.batch_records import has_batch_before
from handlers.landing.copies import copies_folder
from handlers.operate.retention_kinds import kept_versions
from handlers.platform import record_store
from handlers.platform.clients import Clients
from handlers.platform.manifests import MANIFEST_FILE, manifest_folder
from orchestrations.configuration.pipeline import Pipeline

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties

INTERVAL = timedelta(days=1)
# Longer than any freeze takes from its first copy to its record, delays included.
GRACE = timedelta(days=14)
STEP_SECONDS = 60.0
DELETIONS_AT_ONCE = 16
# The number of leading hex digits of the names by which copies are listed in sections.
SECTION_DIGITS = 2
# Seven hex digits of a copy's name are its bit's number, so the bitmap has 32 MiB.
_DIGITS = 7
_BITMAP_BYTES = 16**_DIGITS // 8
_NAME = re.compile(rb'"file": "[0-9a-f]{2}/([0-9a-f]{32})')
_NAME_DIGITS = 32


@dataclass(frozen=True)
class _Pass:
    """The progress of a pass."""

    began_at: str
    """ISO 8601, UTC."""
    versions: list[str]
    """The dataset versions that are kept."""
    marked: int = 0
    """The number of versions that are marked."""
    sections: int = 0
    """The number of sections that are done."""

    @property
    def is_marked(self) -> bool:
        return self.marked == len(self.versions)

    @property
    def is_over(self) -> bool:
        return self.sections == 16**SECTION_DIGITS

    @property
    def first_digit(self) -> int:
        """The position in a name of the digits of its bit's number; it changes each day."""
        day = datetime.fromisoformat(self.began_at).toordinal()
        return day % (_NAME_DIGITS - _DIGITS + 1)


def delete_unneeded_copies(
    clients: Clients,
    pipeline: Pipeline,
    *,
    keep_days: int,
    now: datetime,
    monotonic: Callable[[], float],
) -> int:
    """Do the next steps of a pass for about `STEP_SECONDS`; begin a pass if one is due.

    Versions of the last `keep_days` are kept. Returns the number of deleted copies.
    """
    record = f"copy-retention/{pipeline.name}.json"
    document = record_store.read(clients.records, record)
    under_way = None if document is None else _Pass(**document)
    if under_way is None or under_way.is_over:
        if under_way and now - datetime.fromisoformat(under_way.began_at) < INTERVAL:
            return 0
        since = now - timedelta(days=keep_days)
        if not has_batch_before(clients, pipeline.name, since):
            return 0  # every copy may be of a kept version
        versions = kept_versions(clients, pipeline, since)
        if not versions:
            return 0  # without records, the needed copies are unknown
        under_way = _Pass(began_at=now.isoformat(), versions=sorted(versions))
        record_store.replace(clients.records, record, asdict(under_way))
    deadline = monotonic() + STEP_SECONDS
    bitmap = _Bitmap(clients, pipeline.name, under_way)
    deleted = 0
    unmarked = under_way.versions[under_way.marked :]
    for version in unmarked:
        if monotonic() >= deadline:
            break
        bitmap.mark(version)
        under_way = replace(under_way, marked=under_way.marked + 1)
    if unmarked:
        bitmap.store()
        record_store.replace(clients.records, record, asdict(under_way))
    while under_way.is_marked and not under_way.is_over and monotonic() < deadline:
        deleted += _delete_from_section(clients, pipeline.name, under_way, bitmap)
        under_way = replace(under_way, sections=under_way.sections + 1)
        record_store.replace(clients.records, record, asdict(under_way))
    return deleted


class _Bitmap:
    """A bit for each copy that is kept; stored in the records container between steps."""

    def __init__(self, clients: Clients, pipeline: str, of: _Pass) -> None:
        self._clients = clients
        self._pipeline = pipeline
        self._pass = of
        self._blob = clients.records.get_blob_client(f"copy-retention/{pipeline}.bits")
        self._bits, self._condition = self._read()

    def mark(self, version: str) -> None:
        """Set the bits of the copies in a version's manifest."""
        folder = manifest_folder(self._pipeline, version)
        manifest = self._clients.records.get_blob_client(f"{folder}/{MANIFEST_FILE}")
        begin = self._pass.first_digit
        rest = b""
        try:
            for chunk in manifest.download_blob().chunks():
                lines, newline, rest = (rest + chunk).rpartition(b"\n")
                for name in _NAME.findall(lines + newline):
                    number = int(name[begin : begin + _DIGITS], 16)
                    self._bits[number >> 3] |= 1 << (number & 7)
        except ResourceNotFoundError:
            return  # a deleted manifest names no copies

    def store(self) -> None:
        """Store the bitmap, for the next steps of the pass.

        Raises:
            azure.core.exceptions.ResourceModifiedError: another process stored it.
        """
        written = self._blob.upload_blob(
            bytes(self._bits),
            overwrite=True,
            metadata={"began_at": self._pass.began_at},
            **self._condition,
        )
        self._condition = record_store.unchanged(written["etag"])

    def has(self, path: str) -> bool:
        """Whether a copy is kept; `path` is relative to the folder of copies."""
        begin = 3 + self._pass.first_digit  # after the folder's two digits and the slash
        number = int(path[begin : begin + _DIGITS], 16)
        return bool(self._bits[number >> 3] & 1 << (number & 7))

    def _read(self) -> tuple[bytearray, dict[str, Any]]:
        try:
            download = self._blob.download_blob()
        except ResourceNotFoundError:
            return bytearray(_BITMAP_BYTES), {"match_condition": MatchConditions.IfMissing}
        condition = record_store.unchanged(download.properties.etag)
        if download.properties.metadata.get("began_at") != self._pass.began_at:
            return bytearray(_BITMAP_BYTES), condition  # the bitmap is from an earlier pass
        return bytearray(download.readall()), condition


def _delete_from_section(clients: Clients, pipeline: str, of: _Pass, bitmap: _Bitmap) -> int:
    """Delete unneeded copies of the next section; return their number."""
    folder = copies_folder(pipeline)
    oldest_kept = datetime.fromisoformat(of.began_at) - GRACE
    section = f"{of.sections:0{SECTION_DIGITS}x}"
    listed = clients.records.list_blobs(name_starts_with=folder + section)
    unneeded = [
        blob
        for blob in listed
        if blob.last_modified < oldest_kept and not bitmap.has(blob.name.removeprefix(folder))
    ]

    def delete(blob: BlobProperties) -> bool:
        try:
            clients.records.delete_blob(blob.name, **record_store.unchanged(blob.etag))
        except (ResourceModifiedError, ResourceNotFoundError):
            return False  # a freeze adopted the copy, or another process deleted it
        return True

    with ThreadPoolExecutor(DELETIONS_AT_ONCE) as pool:
        return sum(pool.map(delete, unneeded))
