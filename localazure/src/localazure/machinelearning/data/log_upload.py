"""Uploads growing log files to append blobs, so that `jobs.stream` can follow them."""

from __future__ import annotations

from pathlib import Path

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blobs import APPEND_BYTES, AppendBlob, BlobStore

# An append blob holds 50,000 blocks, which a job that logs every second would reach in half a day.
# The frequency of appends therefore falls with their number.
APPENDS_BEFORE_SLOWING = 1000


class LogUpload:
    """Uploads the log files of one folder."""

    def __init__(self, store: BlobStore, target: BlobPath, folder: Path) -> None:
        self._store = store
        self._target = target
        self._folder = folder
        self._blobs: dict[str, AppendBlob] = {}
        self._appends: dict[str, int] = {}
        self._skips: dict[str, int] = {}

    def push(self, *, is_final: bool) -> None:
        """Append the files' new bytes to their blobs.

        Raises:
            StorageError: storage refused or is unavailable; the next call continues.
        """
        for file in sorted(self._folder.glob("*.txt")):
            if is_final or self._is_due(file.name):
                self._ship(file)

    def _is_due(self, name: str) -> bool:
        """Whether this call uploads a file: each n-th call, where n grows by 1 per 1000 appends."""
        every = 1 + self._appends.get(name, 0) // APPENDS_BEFORE_SLOWING
        self._skips[name] = (self._skips.get(name, 0) + 1) % every
        return self._skips[name] == 0

    def _ship(self, file: Path) -> None:
        blob = self._blobs.setdefault(
            file.name, AppendBlob(self._store, self._target.child(file.name))
        )
        with file.open("rb") as log:
            log.seek(blob.position())
            while content := log.read(APPEND_BYTES):
                blob.append(content)
                log.seek(blob.position())
                self._appends[file.name] = self._appends.get(file.name, 0) + 1
