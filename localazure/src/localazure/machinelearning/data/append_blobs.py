"""An append blob with one writer; a lost response does not duplicate an append."""

from __future__ import annotations

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blob_errors import BlobModifiedError, BlobNotFoundError
from localazure.machinelearning.data.blobs import BlobStore


class AppendBlob:
    """One append blob, created on first use.

    Each append gives its expected position, so an append whose response was lost is not repeated.
    """

    def __init__(self, store: BlobStore, where: BlobPath) -> None:
        self._store = store
        self._where = where
        self._position: int | None = None

    def position(self) -> int:
        """The blob's size in bytes.

        Raises:
            BlobError: storage refused or is unavailable.
        """
        if self._position is None:
            try:
                self._position = self._store.size(self._where)
            except BlobNotFoundError:
                self._store.create_append_blob(self._where)
                self._position = 0
        return self._position

    def append(self, content: bytes) -> int:
        """Append bytes, and return how many of these bytes the blob now has.

        Raises:
            BlobError: storage refused or is unavailable.
        """
        position = self.position()
        try:
            self._store.append(self._where, content, position=position)
            self._position = position + len(content)
        except BlobModifiedError:
            # An earlier append succeeded, but its response was lost.
            self._position = self._store.size(self._where)
        return self._position - position
