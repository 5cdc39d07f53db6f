"""Uploads growing log files to append blobs, so that `jobs.stream` can follow them."""

from __future__ import annotations

from pathlib import Path

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.blobs import BlobStore

# The service's limit for one append since version 2022-11-02 is 100 MiB; older ones take 4 MiB.
# https://learn.microsoft.com/rest/api/storageservices/append-block
APPEND_BYTES = 4 * 1024 * 1024
# An append blob holds 50,000 blocks, which a job that logs every second reaches in half a day. So
# the more appends were made, the rarer they are.
APPENDS_BEFORE_SLOWING = 1000
_CONFLICT = 412


class LogUpload:
    """The log files of one folder.

    Each append names its position, so that an append whose response was lost is not repeated.
    """

    def __init__(self, store: BlobStore, target: BlobPath, folder: Path) -> None:
        self._store = store
        self._target = target
        self._folder = folder
        self._shipped: dict[str, int] = {}
        self._appends: dict[str, int] = {}
        self._skips: dict[str, int] = {}

    def push(self, *, is_final: bool) -> None:
        """Append the new bytes of the files.

        Raises:
            AzureError: storage refused or is unavailable; the next call continues.
        """
        for file in sorted(self._folder.glob("*.txt")):
            if is_final or self._is_due(file.name):
                self._ship(file)

    def _is_due(self, name: str) -> bool:
        """Whether this call uploads: at first every call, after n thousand appends every n-th."""
        every = 1 + self._appends.get(name, 0) // APPENDS_BEFORE_SLOWING
        self._skips[name] = (self._skips.get(name, 0) + 1) % every
        return self._skips[name] == 0

    def _ship(self, file: Path) -> None:
        blob = self._store.container(self._target).get_blob_client(
            self._target.child(file.name).path
        )
        if file.name not in self._shipped:
            try:
                self._shipped[file.name] = blob.get_blob_properties().size
            except ResourceNotFoundError:
                blob.create_append_blob()
                self._shipped[file.name] = 0
        with file.open("rb") as log:
            log.seek(self._shipped[file.name])
            while content := log.read(APPEND_BYTES):
                position = self._shipped[file.name]
                try:
                    blob.append_block(content, appendpos_condition=position)
                except HttpResponseError as error:
                    if error.status_code != _CONFLICT:
                        raise
                    # The answer to an earlier append was lost, but not the append itself.
                    self._shipped[file.name] = blob.get_blob_properties().size
                    log.seek(self._shipped[file.name])
                    continue
                self._shipped[file.name] = position + len(content)
                self._appends[file.name] = self._appends.get(file.name, 0) + 1
