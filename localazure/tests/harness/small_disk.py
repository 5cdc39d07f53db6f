"""A disk that is really full: a command whose folder is a small file system of its own."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from os import PathLike

import pytest

Part = str | PathLike[str]

# A mount namespace: no other process sees the file system, and it ends with the command.
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
_MOUNT = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && shift && exec "$@"'


@functools.cache
def _is_possible() -> bool:
    probe = [*_NAMESPACE, "sh", "-c", "mount -t tmpfs tmpfs /tmp"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def on_small_disk(command: Sequence[Part], folder: Part, size_bytes: int) -> list[Part]:
    """The command, for which the folder is an empty file system of `size_bytes`.

    Skips the test where users may not mount file systems, as in some containers and on macOS.
    """
    if not _is_possible():
        pytest.skip("this machine lets no user mount a file system (unshare --user --mount)")
    return [*_NAMESPACE, "sh", "-c", _MOUNT, str(size_bytes), folder, *command]
