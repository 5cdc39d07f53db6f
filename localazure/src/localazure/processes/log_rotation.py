"""Rotation of a log that processes hold open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def rotate(log: Path, *, limit_bytes: int) -> bool:
    """Move the content of a log that is too large to `<log>.1`, over an older one.

    The processes keep the file open, and so do their children. All append, so the file is copied
    and cut to nothing: what they write afterwards is at its beginning. What they write between the
    last read of the copy and the cut is lost.

    Returns:
        Whether the log was rotated.

    Raises:
        OSError: it could not be, such as on a full disk. The log stays as it is.
    """
    try:
        if log.stat().st_size <= limit_bytes:
            return False
    except FileNotFoundError:
        return False
    scratch = log.with_name(f"{log.name}.tmp")
    try:
        with log.open("rb") as source, scratch.open("wb") as target:
            shutil.copyfileobj(source, target)
            scratch.replace(log.with_name(f"{log.name}.1"))
            shutil.copyfileobj(source, target)  # what was written meanwhile
            target.flush()
            os.truncate(log, 0)
    finally:
        scratch.unlink(missing_ok=True)
    return True
