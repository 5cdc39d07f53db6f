"""Atomic writes of files."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(target: Path, content: str | bytes) -> None:
    """Write a file of its owner so that readers, also after a crash, see old content or new.

    Args:
        target: the file.
        content: bytes, or text as UTF-8.
    """
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    scratch.unlink(missing_ok=True)
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(target)
