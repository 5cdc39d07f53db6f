"""Errors of blob storage, as `blob_requests` raises them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class BlobError(Exception):
    """Storage refused a request, or is unavailable.

    Attributes:
        status: of HTTP; None where no answer came, or only the beginning of one.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: storage is unavailable or busy."""
        status = self.status
        return status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY


class BlobNotFoundError(BlobError):
    """There is no such blob, or no such container."""


class BlobConflictError(BlobError):
    """What is to be created is there already."""


class BlobModifiedError(BlobError):
    """The blob is not in the state that the request depends on."""


ERRORS: Final[Mapping[int, type[BlobError]]] = {
    HTTPStatus.NOT_FOUND: BlobNotFoundError,
    HTTPStatus.CONFLICT: BlobConflictError,
    HTTPStatus.PRECONDITION_FAILED: BlobModifiedError,
}
"""By the status of an answer; any other is a `BlobError`."""
