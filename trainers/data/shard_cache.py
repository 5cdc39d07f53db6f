"""Shards on a mount, and copies of them on the node's own disk.

All ranks of a node share the folder of copies. A copy is named by the shard's SHA-256, verified
while it is written, and appears when it is complete. When the folder is full, the least recently
used copies are removed. If the disk is full before, existing copies are used and no more are made.
A rank that dies leaves at most a temporary file, which the next copy of that shard replaces.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from trainers.data.shard_formats import FORMATS, Row, ShardDamaged
from trainers.data.shard_index import Shard
from trainers.errors import DataChanged, FileProblem, LaunchInvalid
from trainers.files import TEMPORARY_SUFFIX, check_writable

_COPY_BYTES = 2**20
# A copy may be removed between being found and being opened, if the folder is far too small.
_TRIES = 3
_ROOM_LOCK = "room.lock"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


class ShardCache:
    """Reads groups of samples, from a copy if there is a folder for copies.

    Args:
        source: the folder of shards.
        storage: their format.
        folder: for copies; None to read the source itself, a few groups at a time.
        max_bytes: that copies may take.

    Raises:
        LaunchInvalid: the folder for copies cannot be written to.
    """

    def __init__(
        self, source: Path, storage: str, *, folder: Path | None = None, max_bytes: int = 0
    ) -> None:
        self._source = source
        self._format = FORMATS[storage]
        self._folder = folder
        self._max_bytes = max_bytes
        self._has_room = True
        if folder is not None:
            check_writable(folder, "--cache-dir")

    def read(self, shard: Shard, groups: range) -> list[Row]:
        """The samples of some groups of a shard.

        Raises:
            DataChanged: the shard differs from the packed one.
        """
        for _ in range(_TRIES):
            copy = self._copy(shard)
            if copy is None:
                break
            try:
                return self._format.read(copy, shard.offsets, groups)
            except FileNotFoundError:
                continue
            except ShardDamaged:
                copy.unlink(
                    missing_ok=True
                )  # the disk damaged it, unless the source is damaged, too
        try:
            return self._format.read(self._source / shard.name, shard.offsets, groups)
        except (ShardDamaged, FileNotFoundError) as error:
            raise _changed(shard, f"damaged: {error}") from error

    def download(self, shards: Sequence[Shard], *, part: int = 0, parts: int = 1) -> None:
        """Copy all shards. Each rank begins with another of so many parts.

        Raises:
            LaunchInvalid: there is no folder, or `max_bytes` is less than the shards take.
            DataChanged: a shard differs from the packed one.
        """
        needed = sum(shard.size for shard in shards)
        if self._folder is None:
            raise LaunchInvalid("--download needs --cache-dir: the folder to download to")
        if needed > self._max_bytes:
            raise LaunchInvalid(
                f"--download: the shards take {needed} bytes, and --cache-gib allows "
                f"{self._max_bytes}; raise it, or leave --download out to keep what fits"
            )
        first = len(shards) * part // parts
        for shard in [*shards[first:], *shards[:first]]:
            self._copy(shard)
            if not self._has_room:
                raise LaunchInvalid(
                    f"--download: {self._folder} has no room for {needed} bytes of shards: make "
                    "some, name another --cache-dir, or leave --download out to keep what fits"
                )

    def _copy(self, shard: Shard) -> Path | None:
        """The copy of a shard, made if need be; None without copies or for a large shard."""
        if self._folder is None or shard.size > self._max_bytes:
            return None
        copy = self._folder / f"{shard.sha256}.{self._format.suffix}"
        if _is_whole(copy, shard):
            return copy
        if not self._has_room:
            return None
        try:
            with FileLock(copy.with_suffix(".lock")):
                if not _is_whole(copy, shard):  # another rank made it meanwhile
                    self._make(shard, copy)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            self._has_room = False
            sys.stderr.write(
                f"warning: no more shards are copied to {self._folder}: {error.strerror}; they are "
                f"read from {self._source}\n"
            )
            return None
        return copy

    def _make(self, shard: Shard, copy: Path) -> None:
        temporary = copy.with_name(copy.name + TEMPORARY_SUFFIX)
        digest = hashlib.sha256()
        try:
            self._reserve(shard, temporary)
            with (self._source / shard.name).open("rb") as source, temporary.open("r+b") as target:
                while chunk := source.read(_COPY_BYTES):
                    digest.update(chunk)
                    target.write(chunk)
            if digest.hexdigest() != shard.sha256:
                reason = f"SHA-256 {digest.hexdigest()}, not {shard.sha256}"
                raise _changed(shard, reason)  # noqa: TRY301  # one handler removes the file
        except FileNotFoundError:
            temporary.unlink(missing_ok=True)
            raise _changed(shard, "missing") from None
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        temporary.replace(copy)

    def _reserve(self, shard: Shard, temporary: Path) -> None:
        """Make room and reserve it: an empty file of the shard's size, which all ranks count."""
        assert self._folder is not None
        with FileLock(self._folder / _ROOM_LOCK):
            temporary.unlink(missing_ok=True)
            files = [path for path in self._folder.iterdir() if path.suffix != ".lock"]
            sizes = {path: path.stat() for path in files if path.exists()}
            taken = sum(size.st_size for size in sizes.values())
            copies = [path for path in sizes if path.suffix != TEMPORARY_SUFFIX]
            for oldest in sorted(copies, key=lambda path: sizes[path].st_mtime_ns):
                if taken + shard.size <= self._max_bytes:
                    break
                oldest.unlink(missing_ok=True)
                taken -= sizes[oldest].st_size
            with temporary.open("wb") as stream:
                stream.truncate(shard.size)


def _is_whole(copy: Path, shard: Shard) -> bool:
    """Whether a copy exists. If so, its time of use is set to now."""
    try:
        if copy.stat().st_size != shard.size:
            return False
        os.utime(copy)
    except FileNotFoundError:
        return False
    return True


def _changed(shard: Shard, reason: str) -> DataChanged:
    return DataChanged(
        f"the shard {shard.name} differs from the packed one ({reason}): pack again",
        [FileProblem(path=shard.name, reason=reason)],
    )
