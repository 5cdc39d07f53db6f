"""Atomic writes of files."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(target: Path, content: str | bytes, *, mode: int = 0o600) -> None:
    """Write a file so that readers, also after a crash, see the old content or the new one.

    Args:
        target: the file.
        content: bytes, or text as UTF-8.
        mode: the file's permissions; by default, only the owner has access.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(target)
