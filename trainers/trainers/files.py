"""Atomic writes: a file is complete or absent, even if the process dies."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from trainers.errors import LaunchInvalid

TEMPORARY_SUFFIX = ".tmp"


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to a temporary file beside `path`, fsync it, and rename it to `path`.

    The rename replaces atomically (POSIX rename(2)); the fsync of the folder makes it durable. On a
    blob mount a file appears at close and the rename is a copy by the service, so a reader there
    should verify the content: see `trainers.checkpointing.checkpoints`.

    Raises:
        OSError: the file cannot be written; no part of it remains.
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
        temporary.unlink(missing_ok=True)  # a partial file would take space on a full disk
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json_atomically(path: Path, value: object) -> None:
    """Write `value` as indented JSON, atomically.

    Characters that UTF-8 cannot encode, such as undecodable bytes of a file name, become escapes.

    Raises:
        OSError: the file cannot be written; no part of it remains.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode(errors="backslashreplace"))


def check_writable(folder: Path, option: str) -> None:
    """Create an option's folder and write a trial file, to fail at the start and not after hours.

    Raises:
        LaunchInvalid: the folder is not writable.
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
