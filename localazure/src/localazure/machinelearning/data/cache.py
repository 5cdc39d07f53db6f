"""Downloads blobs to a cache by account, container, name and ETag, each version once.

A mounted input consists of hard links to read-only files in the cache, a downloaded input of
copies, because the job may write to them. A cached file that has changed is downloaded again: a
job that runs as root can write to a read-only file.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import (
    BlobStore,
    retry_while_unavailable,
)
from localazure.storage_client.blobs import Blob
from localazure.storage_client.endpoint import NotFoundError, PreconditionError

PARALLEL_DOWNLOADS = 8
READ_ONLY = 0o444
_MARK_NS = 123_456_000


class SourceNotFoundError(FileNotFoundError):
    """There is no blob at or below the path."""


class NameTooLongError(OSError):
    """A blob's name cannot be the name of a file; the message is the name."""


class BlobCache:
    """A cache of downloaded blobs that all jobs of one state folder share."""

    def __init__(self, folder: Path, store: BlobStore) -> None:
        self._folder = folder
        self._store = store

    def materialize(self, source: BlobPath, target: Path, *, is_mount: bool) -> int:
        """Fill the folder `target` with the blobs at `source`; return their number.

        A mount shows what is there when it is read, without names that no file can have. A download
        needs the blobs as they were listed.

        Raises:
            SourceNotFoundError: there are no blobs.
            NameTooLongError: a blob cannot be downloaded into a file of its name.
            PreconditionError, NotFoundError: a blob was overwritten or deleted meanwhile.
            StorageError: storage refused, or was unavailable for `PATIENCE_SECONDS` at a stretch;
                the next call reuses the downloaded files.
        """
        target.mkdir(parents=True, exist_ok=True)
        blobs = retry_while_unavailable(lambda: list(self._store.list(source)))
        if not blobs:
            raise SourceNotFoundError(
                f"container {source.container!r} holds nothing at {source.path!r}"
            )
        names = _names(target, blobs, hides_long_ones=is_mount)
        for folder in {destination.parent for destination in names.values()}:
            folder.mkdir(parents=True, exist_ok=True)

        def place(share: Iterable[Blob]) -> None:
            for blob in share:
                destination = names.get(blob)
                if destination is None:
                    continue
                destination.unlink(missing_ok=True)
                if not is_mount:
                    shutil.copyfile(self._cached(source, blob), destination)
                elif (cached := self._current(source, blob)) is not None:
                    os.link(cached, destination)

        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            shares = [blobs[first::PARALLEL_DOWNLOADS] for first in range(PARALLEL_DOWNLOADS)]
            deque(pool.map(place, shares), maxlen=0)  # raises the first error
        return len(blobs)

    def _current(self, source: BlobPath, blob: Blob) -> Path | None:
        """The cached file of a blob as it is now; None if it was deleted."""
        name = blob.name
        while True:
            try:
                return self._cached(source, blob)
            except NotFoundError:
                return None
            except PreconditionError:
                listing = self._store.list(dataclasses.replace(source, path=name))
                current = next((each for each in listing if each.name == name), None)
                if current is None:
                    return None
                blob = dataclasses.replace(current, path=blob.path)

    def _cached(self, source: BlobPath, blob: Blob) -> Path:
        identity = f"{source.account}\n{source.container}\n{blob.name}\n{blob.etag}"
        key = hashlib.sha256(identity.encode()).hexdigest()
        cached = self._folder / key[:2] / key
        if not _is_intact(cached, blob):
            cached.parent.mkdir(parents=True, exist_ok=True)
            scratch = cached.with_name(f"{key}.{os.getpid()}.{threading.get_ident()}.tmp")
            self._store.download(source, blob, scratch)
            marked_ns = _marked_time_ns(blob)
            os.utime(scratch, ns=(marked_ns, marked_ns))
            scratch.chmod(READ_ONLY)
            scratch.replace(cached)
        return cached


def _names(target: Path, blobs: Sequence[Blob], *, hides_long_ones: bool) -> dict[Blob, Path]:
    """The destination of each file whose name can be a file's.

    Raises:
        NameTooLongError: another one is there, and is not to be hidden.
    """
    names: dict[Blob, Path] = {}
    for blob in blobs:
        destination = target / blob.path
        try:
            destination.stat()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            if not hides_long_ones:
                raise NameTooLongError(blob.name) from error
            continue
        names[blob] = destination
    return names


def _is_intact(cached: Path, blob: Blob) -> bool:
    try:
        status = cached.stat()
    except FileNotFoundError:
        return False
    return status.st_size == blob.size and status.st_mtime_ns == _marked_time_ns(blob)


def _marked_time_ns(blob: Blob) -> int:
    """The blob's time (whole seconds) plus a fraction that marks a file of the cache."""
    return int(blob.modified.timestamp()) * 1_000_000_000 + _MARK_NS
