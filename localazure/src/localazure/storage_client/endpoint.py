"""Services of a storage account: their addresses and keys, requests to them, and their errors.

Pure: no I/O. Source: https://learn.microsoft.com/rest/api/storageservices/
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

from localazure.storage_client.signature import sign_request

API_VERSION: Final = "2021-12-02"
SCOPE: Final = "https://storage.azure.com/.default"
"""The scope of the tokens of identities."""

_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


class Service(StrEnum):
    """A service of a storage account."""

    BLOB = "blob"
    QUEUE = "queue"
    TABLE = "table"


@dataclass(frozen=True)
class Request:
    """A request to a service."""

    method: str
    """In upper case."""
    path: str
    """Decoded, without a leading slash: `CONTAINER/NAME` of a blob."""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Additional headers, names in lower case."""
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    """The response to a request that succeeded; the names of headers ignore case."""

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True, repr=False)
class Endpoint:
    """The endpoint of an account's service, with a key, a SAS, or neither.

    Without both, requests carry a token, or are anonymous.
    """

    url: str
    """The URL without a trailing slash."""
    service: Service = Service.BLOB
    connection: str = ""
    """The connection name of a binding; its settings give the identity."""
    account: str = ""
    key: str | None = None
    sas: str | None = None
    """The SAS without a leading `?`."""

    @property
    def needs_identity(self) -> bool:
        """Whether there is neither a key nor a SAS."""
        return self.key is None and self.sas is None

    def url_of(self, path: str) -> str:
        """The URL of a decoded path, without a query."""
        return f"{self.url}/{quote(path, safe='/~()')}"

    def prepare(self, request: Request, token: str | None = None) -> tuple[str, dict[str, str]]:
        """The URL and the headers to send: authorized by the token, the key, the SAS or not."""
        query = [urlencode(request.query, quote_via=quote)] if request.query else []
        tail = "&".join((*query, *([self.sas] if self.sas else [])))
        url = self.url_of(request.path) + (f"?{tail}" if tail else "")
        headers = {
            "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True),
            "x-ms-version": API_VERSION,
            **({"content-length": str(len(request.body))} if request.method[0] == "P" else {}),
            **({"content-type": "application/octet-stream"} if request.body else {}),
            **request.headers,
        }
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        elif self.key is not None:
            is_table = self.service is Service.TABLE
            headers["authorization"] = sign_request(
                request.method, url, headers, account=self.account, key=self.key, is_table=is_table
            )
        return url, headers


class StorageError(Exception):
    """A service refused a request, or is unavailable.

    Attributes:
        status: HTTP status; None if there was no response, or an incomplete one.
        code: the service's error code, such as `TableNotFound`.
        reason: the service's sentence.
    """

    def __init__(
        self, message: str, status: int | None = None, code: str = "", reason: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.reason = reason

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: storage is unavailable or busy."""
        status = self.status
        return status is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _BUSY


class NotFoundError(StorageError):
    """The blob or its container, or the table, does not exist."""


class ConflictError(StorageError):
    """The resource to create exists already."""


class PreconditionError(StorageError):
    """A condition of the request, such as the blob's ETag or position, does not hold."""


ERRORS: Final[Mapping[int, type[StorageError]]] = {
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.PRECONDITION_FAILED: PreconditionError,
}
"""HTTP status → error class; other statuses are a `StorageError`."""


def refusal(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> StorageError:
    """The error for a response whose status is not a success."""
    try:
        document = ET.fromstring(body)  # noqa: S314 - from the account itself
    except ET.ParseError:
        document = ET.Element("Error")
    code = headers.get("x-ms-error-code") or document.findtext(".//{*}Code") or "no error code"
    reason = (document.findtext(".//{*}Message") or code).partition("\n")[0]
    message = f"{request.method} /{request.path}: {code} (HTTP {status})"
    return ERRORS.get(status, StorageError)(message, status, code, reason)
