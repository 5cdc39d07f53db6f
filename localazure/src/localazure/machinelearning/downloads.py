"""Downloads blobs to a cache by account, container, name and ETag, each version once.

A mounted input consists of hard links to read-only files in the cache, a downloaded input of
copies, because the job may write to them. A cached file that has changed is downloaded again: a
job that runs as root can write to a read-only file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.blobs import (
    BlobStore,
    RemoteFile,
    retry_while_unavailable,
)

PARALLEL_DOWNLOADS = 8
READ_ONLY = 0o444
_MARK_NS = 123_456_000


class SourceNotFoundError(FileNotFoundError):
    """There is no blob at or below the path."""


class BlobCache:
    """A cache of downloaded blobs that all jobs of one state folder share."""

    def __init__(self, folder: Path, store: BlobStore) -> None:
        self._folder = folder
        self._store = store

    def materialize(self, source: BlobPath, target: Path, *, is_mount: bool) -> int:
        """Fill the folder `target` with the blobs at `source`; return their number.

        Raises:
            SourceNotFoundError: there are no blobs.
            BlobError: storage refused, or was unavailable for `PATIENCE_SECONDS` at a stretch; the
                next call reuses the downloaded files.
        """
        target.mkdir(parents=True, exist_ok=True)
        files = retry_while_unavailable(lambda: list(self._store.list(source)))
        if not files:
            raise SourceNotFoundError(
                f"container {source.container!r} holds nothing at {source.path!r}"
            )
        for folder in {(target / file.path).parent for file in files}:
            folder.mkdir(parents=True, exist_ok=True)

        def place(some: Iterable[RemoteFile]) -> None:
            for file in some:
                cached = self._cached(source, file)
                destination = target / file.path
                destination.unlink(missing_ok=True)
                if is_mount:
                    os.link(cached, destination)
                else:
                    shutil.copyfile(cached, destination)

        with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
            shares = [files[first::PARALLEL_DOWNLOADS] for first in range(PARALLEL_DOWNLOADS)]
            deque(pool.map(place, shares), maxlen=0)  # raises the first error
        return len(files)

    def _cached(self, source: BlobPath, file: RemoteFile) -> Path:
        identity = f"{source.account}\n{source.container}\n{file.blob.name}\n{file.blob.etag}"
        key = hashlib.sha256(identity.encode()).hexdigest()
        cached = self._folder / key[:2] / key
        if not _is_as_left(cached, file):
            cached.parent.mkdir(parents=True, exist_ok=True)
            scratch = cached.with_name(f"{key}.{os.getpid()}.{threading.get_ident()}.tmp")
            self._store.download(source, file, scratch)
            marked_ns = _marked_time_ns(file)
            os.utime(scratch, ns=(marked_ns, marked_ns))
            scratch.chmod(READ_ONLY)
            scratch.replace(cached)
        return cached


def _is_as_left(cached: Path, file: RemoteFile) -> bool:
    try:
        found = cached.stat()
    except FileNotFoundError:
        return False
    return found.st_size == file.blob.size and found.st_mtime_ns == _marked_time_ns(file)


def _marked_time_ns(file: RemoteFile) -> int:
    """The blob's time (whole seconds) plus a fraction that marks a file of the cache."""
    return int(file.blob.modified.timestamp()) * 1_000_000_000 + _MARK_NS
