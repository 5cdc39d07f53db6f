"""Files that are written whole."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(target: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Write a file: readers, also after a crash, find the old one or the new one.

    Args:
        target: the file.
        content: bytes, or text as UTF-8.
        mode: its permissions; by default it is its owner's only.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(target)
