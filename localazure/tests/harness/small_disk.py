"""A disk that is really full: a folder that is a small file system for the commands in it."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Self

import pytest

Part = str | PathLike[str]

# A mount namespace: no other process sees the file system, and it ends with its last process.
_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")
# It lasts until the end of stdin, that is, at the latest until the end of the tests.
_MOUNT = 'mount -t tmpfs -o "size=$0" tmpfs "$1" && echo mounted && exec cat'


@functools.cache
def is_possible() -> bool:
    """Whether this machine lets users mount file systems: some containers and macOS do not."""
    probe = [*_NAMESPACE, "sh", "-c", "mount -t tmpfs tmpfs /tmp"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class SmallDisk:
    """An empty file system of `size_bytes` on a folder, for commands only; a context manager.

    Skips the test where it is not possible.
    """

    def __init__(self, folder: Path, size_bytes: int) -> None:
        if not is_possible():
            pytest.skip("this machine lets no user mount a file system (unshare --user --mount)")
        command = [*_NAMESPACE, "sh", "-c", _MOUNT, str(size_bytes), folder]
        self._holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        self._ballast = Path(f"/proc/{self._holder.pid}/root/{folder.resolve()}/ballast")

    def command(self, command: Sequence[Part]) -> list[Part]:
        """The command, for which the folder is the file system."""
        target = ("--target", str(self._holder.pid), "--preserve-credentials")
        return ["nsenter", "--user", "--mount", *target, *command]

    def fill(self) -> None:
        """Take all space that is free."""
        with self._ballast.open("ab", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        """Give back the space that `fill` took."""
        self._ballast.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()
