"""The uploads and deletions that make the blobs equal to an output folder. Pure.

A file is uploaded only if two consecutive scans found the same size, time and inode: a file that
is being written waits. After the processes have ended, the last plan includes all files.

Uploads are in the order in which the files were written, and deletions come last: after a crash in
between, the blobs have a state that the folder once had. A file that refers to others, such as a
checkpoint's index, is never uploaded before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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


@dataclass(frozen=True)
class SyncPlan:
    """Relative paths; make the deletions after the uploads."""

    uploads: tuple[str, ...]
    """Oldest first."""
    deletions: tuple[str, ...]


def plan_sync(*, synced: Scan, previous: Scan, current: Scan, is_final: bool) -> SyncPlan:
    """Compare two scans with the known state of the blobs.

    Args:
        synced: the state of each file at its last upload or download.
        previous: the previous scan.
        current: the current scan.
        is_final: whether all writers have ended.
    """

    def is_settled(path: str) -> bool:
        return is_final or previous.get(path) == current.get(path)

    return SyncPlan(
        uploads=tuple(
            path
            for path in sorted(current, key=lambda path: (current[path].modified_ns, path))
            if current[path] != synced.get(path) and is_settled(path)
        ),
        deletions=tuple(
            path for path in sorted(synced) if path not in current and is_settled(path)
        ),
    )
