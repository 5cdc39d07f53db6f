"""Synchronizes one output folder of a job with its blobs, across attempts and crashes.

A state file lists the files that equal their blobs. After a crash, the next attempt first uploads
the changes of the previous attempt, and then downloads only the differences.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import BlobStore
from localazure.processes.atomic_file import write_atomically
from localazure.storage_client.blobs import Blob
from localazure.storage_client.endpoint import NotFoundError, PreconditionError

# Larger files are uploaded in blocks, so that memory never holds a whole file.
BLOCK_BYTES = 8 * 1024 * 1024
_SCRATCH_PREFIX = ".localazure-"


@dataclass(frozen=True)
class FileState:
    """The state of a file in one scan."""

    size: int
    """Bytes."""
    modified_ns: int
    """mtime, nanoseconds."""
    inode: int
    """Distinguishes a replaced file from a rewritten one."""


Scan = Mapping[str, FileState]


def plan_sync(
    *, synced: Scan, previous: Scan, current: Scan, is_final: bool
) -> tuple[list[str], list[str]]:
    """The paths to upload, and those whose blobs to delete.

    A file is uploaded only if two consecutive scans found the same size, time and inode: a file
    that is being written waits. After the processes have ended, the last plan includes all files.

    Uploads are in the order in which the files were written, and deletions come last: after a crash
    in between, the blobs have a state that the folder once had. A file that refers to others, such
    as a checkpoint's index, is never uploaded before them.

    Args:
        synced: the state of each file at its last upload or download.
        previous: the previous scan.
        current: the current scan.
        is_final: whether all writers have ended.
    """

    def is_settled(path: str) -> bool:
        return is_final or previous.get(path) == current.get(path)

    uploads = [path for path in current if current[path] != synced.get(path) and is_settled(path)]
    deletions = [path for path in sorted(synced) if path not in current and is_settled(path)]
    return sorted(uploads, key=lambda path: (current[path].modified_ns, path)), deletions


class OutputSync:
    """One folder and one prefix of blobs.

    Args:
        store: has the blobs.
        target: the blobs' container and prefix.
        folder: the local folder; created if missing.
        state: the state file.
        only: synchronise only this file of the folder (`uri_file` outputs).
    """

    def __init__(
        self, store: BlobStore, target: BlobPath, folder: Path, state: Path, only: str | None = None
    ) -> None:
        self._store = store
        self._target = target
        self._folder = folder
        self._state = state
        self._only = only
        self._synced: dict[str, FileState] = {}
        self._etags: dict[str, str] = {}
        self._previous: Scan = {}
        folder.mkdir(parents=True, exist_ok=True)
        state.parent.mkdir(parents=True, exist_ok=True)
        if state.exists():
            document: dict[str, Any] = json.loads(state.read_text())
            self._etags = document["etags"]
            self._synced = {path: FileState(**entry) for path, entry in document["files"].items()}

    def download(self) -> None:
        """Make the folder equal to its blobs, before the job's processes start."""
        remote = {
            blob.path: blob
            for blob in self._store.list(self._target)
            if self._only is None or blob.path == self._only
        }
        for path in sorted(set(self._synced) - set(remote)):
            (self._folder / path).unlink(missing_ok=True)
            self._forget(path)
        for path, file in remote.items():
            is_same = self._etags.get(path) == file.etag and path in self._synced
            if not is_same or not (self._folder / path).exists():
                self._download(file)
        self._save()

    def push(self, *, is_final: bool) -> None:
        """Upload new and changed files that are settled; delete the blobs of deleted files.

        Args:
            is_final: whether all writers have ended, so that all files are settled.

        Raises:
            StorageError: storage refused or is unavailable; the next call continues.
        """
        current = self._scan()
        uploads, deletions = plan_sync(
            synced=self._synced, previous=self._previous, current=current, is_final=is_final
        )
        self._previous = current
        if not uploads and not deletions:
            return
        try:
            for path in uploads:
                self._upload(path, current[path])
            for path in deletions:
                self._delete(path)
        finally:
            self._save()

    def _scan(self) -> dict[str, FileState]:
        scan: dict[str, FileState] = {}
        for parent, _, names in os.walk(self._folder):
            for name in names:
                file = Path(parent, name)
                path = file.relative_to(self._folder).as_posix()
                if name.startswith(_SCRATCH_PREFIX) or (self._only and path != self._only):
                    continue
                with contextlib.suppress(FileNotFoundError):  # deleted after the listing
                    status = file.lstat()
                    # Links and devices cannot be stored as blobs.
                    if stat.S_ISREG(status.st_mode):
                        scan[path] = _state_of(status)
        return scan

    def _upload(self, path: str, expected: FileState) -> None:
        """Upload one file; do not change the blob if the file changes during the upload."""
        target = self._target.child(path)
        try:
            file = (self._folder / path).open("rb")
        except FileNotFoundError:
            return
        with file:
            if expected.size <= BLOCK_BYTES:
                content = file.read(BLOCK_BYTES + 1)
                if not _is_still(file, expected):
                    return
                etag = self._store.upload(target, content)
            else:
                blocks = self._stage(target, file)
                if not _is_still(file, expected):
                    return
                etag = self._store.commit_blocks(target, blocks)
        self._synced[path] = expected
        self._etags[path] = etag

    def _stage(self, target: BlobPath, file: BinaryIO) -> list[str]:
        blocks: list[str] = []
        while content := file.read(BLOCK_BYTES):
            blocks.append(uuid.uuid4().hex)
            self._store.stage_block(target, blocks[-1], content)
        return blocks

    def _delete(self, path: str) -> None:
        with contextlib.suppress(NotFoundError):
            self._store.delete(self._target.child(path))
        self._forget(path)

    def _download(self, file: Blob) -> None:
        destination = self._folder / file.path
        destination.parent.mkdir(parents=True, exist_ok=True)
        scratch = destination.with_name(f"{_SCRATCH_PREFIX}{uuid.uuid4().hex}")
        try:
            self._store.download(self._target, file, scratch)
            scratch.replace(destination)
        except (PreconditionError, NotFoundError):
            return  # another writer replaced or deleted the blob; keep its change
        finally:
            scratch.unlink(missing_ok=True)
        self._synced[file.path] = _state_of(destination.lstat())
        self._etags[file.path] = file.etag

    def _forget(self, path: str) -> None:
        self._synced.pop(path, None)
        self._etags.pop(path, None)

    def _save(self) -> None:
        files = {path: dataclasses.asdict(state) for path, state in self._synced.items()}
        write_atomically(self._state, json.dumps({"files": files, "etags": self._etags}))


def _is_still(file: BinaryIO, expected: FileState) -> bool:
    return _state_of(os.fstat(file.fileno())) == expected


def _state_of(status: os.stat_result) -> FileState:
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)
