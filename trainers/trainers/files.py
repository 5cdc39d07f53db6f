"""Files that are complete or absent, whenever the process dies."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from trainers.errors import LaunchInvalid

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`: to a temporary file beside it, then fsync and rename.

    Rename replaces atomically (POSIX rename(2)); the folder's fsync makes the rename last. On a
    blob mount a file appears at close and the rename is a copy by the service, so a reader there
    should verify the content: see `trainers.checkpointing.checkpoints`.

    Raises:
        OSError: it cannot be written; no part of it remains.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # a partial file would take room on a full disk
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json_atomically(path: Path, value: object) -> None:
    """Write `value` as indented JSON, atomically.

    Characters that UTF-8 cannot encode, as undecodable bytes of a file's name, become escapes.

    Raises:
        OSError: as `write_atomically`.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(errors="backslashreplace"))


def check_writable(folder: Path, option: str) -> None:
    """Create the folder that an option names, and write a file in it, before hours of work.

    Raises:
        LaunchInvalid: it cannot be written to.
    """
    trial = folder / f"{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
    try:
        write_atomically(trial, b"")
        trial.unlink()
    except OSError as error:
        raise LaunchInvalid(
            f"{option} {folder} cannot be written to ({type(error).__name__}: {error.strerror}): "
            "name another folder, or make room or permission there"
        ) from error
