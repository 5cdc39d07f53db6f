"""A lock file that names its owner. The kernel releases it when the owner dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO


class OwnedElsewhere(Exception):
    """Another process holds the lock: `owner` is its id, None if it is not known."""

    def __init__(self, owner: int | None) -> None:
        super().__init__(f"in use by process {owner or '(unknown)'}")
        self.owner = owner


def acquire(path: Path, *, is_shared: bool = False) -> TextIO:
    """Lock `path` until the returned file is closed, also by processes that inherited it.

    Args:
        path: the lock file, made when missing.
        is_shared: let others share it; only one that wants it alone is kept out.

    Raises:
        OwnedElsewhere: another open file holds the lock.
    """
    file = path.open("a+")
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise OwnedElsewhere(int(owner) if owner else None) from None
    file.truncate(0)  # of one that shares it, the last to come is named
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def wait_for(path: Path) -> TextIO:
    """Lock `path` as soon as no other open file does, until the returned file is closed. Blocks."""
    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
