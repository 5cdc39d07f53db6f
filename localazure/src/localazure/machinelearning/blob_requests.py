"""Lists and reads blobs by plain requests: jobs read many small ones.

The SDK takes some 2 ms of CPU for a blob that it downloads, and 0.5 ms for one that it lists. A
signed request over a connection that stays open takes a fraction of that.

Sources: https://learn.microsoft.com/rest/api/storageservices/list-blobs and
https://learn.microsoft.com/rest/api/storageservices/get-blob
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import xml.etree.ElementTree as ET
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http import HTTPStatus
from typing import BinaryIO, Final, Self, TypeAlias
from urllib.parse import quote, unquote, urlencode

from azure.core.exceptions import (
    HttpResponseError,
    ResourceModifiedError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from yarl import URL

from localazure.storage_client.service import Service
from localazure.storage_client.signature import sign_request

API_VERSION: Final = "2021-12-02"
TIMEOUT_SECONDS: Final = 60
# The service's own limit.
BLOBS_PER_PAGE: Final = 5000
PIECE_BYTES: Final = 1024 * 1024
Authorize: TypeAlias = Callable[[URL, dict[str, str]], str]
_ERRORS: Final[Mapping[int, type[HttpResponseError]]] = {
    HTTPStatus.NOT_FOUND: ResourceNotFoundError,
    HTTPStatus.PRECONDITION_FAILED: ResourceModifiedError,
}


@dataclass(frozen=True)
class ListedBlob:
    """One blob of a container.

    Attributes:
        size: bytes.
        etag: without quotes.
    """

    name: str
    size: int
    etag: str
    modified: datetime


class BlobRequests:
    """The Blob service of one account. May be used by many threads.

    Args:
        endpoint: of the account.
        authorize: the `Authorization` of a GET, from its URL and its headers.
        tls: whom to trust, where the endpoint is one of https.
    """

    def __init__(
        self, endpoint: str, authorize: Authorize, tls: ssl.SSLContext | None = None
    ) -> None:
        self._endpoint = URL(endpoint)
        self._authorize = authorize
        self._tls = tls
        self._idle: list[http.client.HTTPConnection] = []

    @classmethod
    def by_key(cls, connection_string: str) -> Self:
        """With the key of a connection string, which also has `BlobEndpoint` and `AccountName`."""
        parts = (part.partition("=") for part in connection_string.split(";") if part)
        values = {name: value for name, _, value in parts}

        def authorize(url: URL, headers: Mapping[str, str]) -> str:
            return sign_request(
                Service.BLOB,
                "GET",
                url,
                headers,
                account=values["AccountName"],
                key=values["AccountKey"],
            )

        return cls(values["BlobEndpoint"], authorize)

    def list(self, container: str, prefix: str) -> Iterator[ListedBlob]:
        """The blobs whose names start with a prefix, in the order of their names.

        Raises:
            AzureError: storage refused or is unavailable.
        """
        query = {
            "restype": "container",
            "comp": "list",
            "maxresults": str(BLOBS_PER_PAGE),
            **({"prefix": prefix} if prefix else {}),
        }
        marker = ""
        while True:
            page_query = {**query, **({"marker": marker} if marker else {})}
            with self._get(quote(container), page_query, {}) as pieces:
                page = ET.fromstring(b"".join(pieces))  # noqa: S314 - from the account itself
            yield from map(_listed, page.iterfind("Blobs/Blob"))
            marker = page.findtext("NextMarker") or ""
            if not marker:
                return

    def download(self, container: str, blob: ListedBlob, out: BinaryIO) -> None:
        """Write exactly the version that was listed.

        Raises:
            ResourceModifiedError: the blob was overwritten since.
            AzureError: storage refused or is unavailable.
        """
        path = f"{quote(container)}/{quote(blob.name, safe='/~')}"
        with self._get(path, {}, {"if-match": f'"{blob.etag}"'}) as pieces:
            out.writelines(pieces)
        if out.tell() != blob.size:
            raise ServiceResponseError(f"{path}: {out.tell()} of {blob.size} bytes were received")

    def close(self) -> None:
        """Close the connections; none is in use."""
        while self._idle:
            self._idle.pop().close()

    @contextlib.contextmanager
    def _get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> Generator[Iterator[bytes]]:
        """The body of a response, in pieces; the connection is used again if all are read."""
        tail = f"?{urlencode(query, quote_via=quote)}" if query else ""
        url = URL(f"{self._endpoint}/{path}{tail}", encoded=True)
        sent = {
            "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True),
            "x-ms-version": API_VERSION,
            **headers,
        }
        sent["authorization"] = self._authorize(url, sent)
        connection = self._connection()
        response: http.client.HTTPResponse | None = None
        try:
            with _azure_errors(url):
                connection.request("GET", url.raw_path_qs, headers=sent)
                response = connection.getresponse()
            _check(url, response)
            yield _pieces(url, response)
        except BaseException:
            connection.close()
            if response is not None:  # of a connection that the service closes, it has the socket
                response.close()
            raise
        if response.isclosed():
            self._idle.append(connection)
        else:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.pop()
        except IndexError:
            host, port = self._endpoint.host or "", self._endpoint.port
            if self._tls is None:
                return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
            return http.client.HTTPSConnection(
                host, port, timeout=TIMEOUT_SECONDS, context=self._tls
            )


@contextlib.contextmanager
def _azure_errors(url: URL) -> Generator[None]:
    """Errors of the connection as the SDK raises them: the same request may succeed later."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise ServiceRequestError(f"GET {url.raw_path}: {type(error).__name__}: {error}") from error


def _pieces(url: URL, response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        with _azure_errors(url):
            piece = response.read(PIECE_BYTES)
        if not piece and response.length:
            raise ServiceResponseError(f"GET {url.raw_path}: {response.length} bytes are missing")
        if not piece:
            return
        yield piece


def _listed(blob: ET.Element) -> ListedBlob:
    name, properties = blob.find("Name"), blob.find("Properties")
    assert name is not None
    assert properties is not None
    text = name.text or ""
    return ListedBlob(
        # A name with characters that XML cannot have is percent-encoded.
        unquote(text) if name.get("Encoded") == "true" else text,
        int(properties.findtext("Content-Length") or 0),
        (properties.findtext("Etag") or "").strip('"'),
        parsedate_to_datetime(properties.findtext("Last-Modified") or ""),
    )


def _check(url: URL, response: http.client.HTTPResponse) -> None:
    if response.status != HTTPStatus.OK:
        response.close()  # it holds the socket where the service ends the connection
        code = response.getheader("x-ms-error-code") or "no error code"
        error = _ERRORS.get(response.status, HttpResponseError)(
            f"GET {url.raw_path}: {code} (HTTP {response.status})"
        )
        error.status_code, error.reason = response.status, response.reason
        raise error
