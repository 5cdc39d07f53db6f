"""Errors of blob storage, as `blob_requests` raises them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class BlobError(Exception):
    """Storage refused a request, or is unavailable.

    Attributes:
        status: HTTP status; None if there was no response, or an incomplete one.
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
    """The blob or its container does not exist."""


class BlobConflictError(BlobError):
    """The resource to create exists already."""


class BlobModifiedError(BlobError):
    """A condition of the request, such as the blob's ETag or position, does not hold."""


ERRORS: Final[Mapping[int, type[BlobError]]] = {
    HTTPStatus.NOT_FOUND: BlobNotFoundError,
    HTTPStatus.CONFLICT: BlobConflictError,
    HTTPStatus.PRECONDITION_FAILED: BlobModifiedError,
}
"""HTTP status → error class; other statuses are a `BlobError`."""
