"""Files that are either whole or not there, whenever the process dies."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path` by a temporary neighbour of its own, fsync and rename.

    Rename replaces atomically (POSIX rename(2)); the folder's fsync makes the rename last. On a
    blob mount a file appears as a whole at close and the rename is the service's copy, so that a
    reader there should check what it reads: see `trainers.checkpointing.checkpoints`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    with temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json_atomically(path: Path, value: object) -> None:
    """Write `value` as JSON that a person can read, atomically."""
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())
