"""A lock file that names its owner. The kernel releases it when the owner dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TextIO


class OwnedElsewhere(Exception):
    """Another process holds the lock. `owner` is its id; None if unknown."""

    def __init__(self, owner: int | None) -> None:
        super().__init__(f"in use by process {owner or '(unknown)'}")
        self.owner = owner


def acquire(path: Path) -> TextIO:
    """Lock `path` until this process and all that inherit the returned file have closed it.

    Raises:
        OwnedElsewhere: another open file holds the lock.
    """
    path.touch(0o600)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        owner = file.read().strip()
        file.close()
        raise OwnedElsewhere(int(owner) if owner else None) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def wait_for(path: Path) -> TextIO:
    """Wait until `path` is not locked, then lock it until the returned file is closed. Blocks."""
    path.touch(0o600)
    file = path.open("a")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
