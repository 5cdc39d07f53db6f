"""The uploads and deletions that make the blobs equal to an output folder. Pure.

A file is uploaded only when two scans in a row found it with the same size and time: one that is
being written is left for later. After the processes have ended nothing moves any more, and the
last plan takes everything.

Uploads go in the order in which the files were written, deletions after them: after a crash in
between, the blobs are in a state that the folder once had. A file that refers to others, such as a
checkpoint's record, is never there before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FileState:
    """How a file looked in one scan."""

    size: int
    """Bytes."""
    modified_ns: int
    """mtime, nanoseconds."""
    inode: int
    """Distinguishes a replaced file from a rewritten one."""


Scan = Mapping[str, FileState]


@dataclass(frozen=True)
class SyncPlan:
    """Relative paths. The deletions are for after the uploads."""

    uploads: tuple[str, ...]
    """Oldest first."""
    deletions: tuple[str, ...]


def plan_sync(*, synced: Scan, previous: Scan, current: Scan, is_final: bool) -> SyncPlan:
    """Compare two scans with what the blobs are known to hold.

    Args:
        synced: how each file looked when it was last uploaded or brought down.
        previous: the scan before.
        current: the scan just made.
        is_final: no process writes to the folder any more.
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
