"""Requests to the REST interface of a storage service, without the SDK.

Table bindings pass JSON through. azure-data-tables would convert it to Python types and back, and
so change numbers, times and `@odata.type` annotations (docs/decisions/0001-dependencies.md).

Source: https://learn.microsoft.com/rest/api/storageservices/
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Final
from urllib.parse import quote

import aiohttp
from yarl import URL

from localazure.storage_client.service import Service
from localazure.storage_client.signature import sign_request

API_VERSION: Final = "2021-12-02"
TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
_SCOPE: Final = "https://storage.azure.com/.default"


@dataclass(frozen=True, kw_only=True, repr=False)
class Endpoint:
    """The endpoint of an account's service, and its credential: a key, a SAS or an identity."""

    url: str
    """The URL without a trailing slash."""
    service: Service
    connection: str = ""
    """The connection name of the binding; its settings give the identity."""
    account: str = ""
    key: str | None = None
    sas: str | None = None
    """The SAS without a leading `?`."""

    @property
    def needs_identity(self) -> bool:
        """Whether there is neither a key nor a SAS."""
        return self.key is None and self.sas is None


class StorageError(Exception):
    """A storage service refused a request.

    Attributes:
        status: the HTTP status.
        code: the service's error code, such as `TableNotFound`.
    """

    def __init__(self, status: int, code: str, what: str) -> None:
        super().__init__(f"{what}: {code} (HTTP {status})")
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Answer:
    """The response to a request that succeeded."""

    headers: Mapping[str, str]
    body: bytes


class StorageRest:
    """One service of one account.

    Args:
        session: the HTTP session.
        endpoint: the service's endpoint.
        credential: an async TokenCredential, if the endpoint needs an identity.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        credential: Any = None,
    ) -> None:
        self._session = session
        self._endpoint = endpoint
        self._credential = credential

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """Send one request.

        Args:
            method: in upper case.
            path: the path after the endpoint, with a leading slash, percent-encoded.
            query: the decoded parameters.
            headers: additional headers, names in lower case.
            body: the request's body.

        Raises:
            StorageError: the service refused it.
            aiohttp.ClientError: the service could not be reached.
            TimeoutError: the answer took too long.
        """
        url = self._url(path, query or {})
        sent = {
            "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True),
            "x-ms-version": API_VERSION,
            **(headers or {}),
        }
        if body:
            sent["content-length"] = str(len(body))
        await self._authorize(method, url, sent)
        async with self._session.request(
            method,
            url,
            headers=sent,
            data=body or None,
            timeout=TIMEOUT,
            # If aiohttp added a Content-Type, it would have to be signed.
            skip_auto_headers=("Content-Type",),
        ) as response:
            content = await response.read()
            if response.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
                raise StorageError(
                    response.status,
                    response.headers.get("x-ms-error-code") or _error_code(content),
                    f"{method} {self._endpoint.url}{path}",
                )
            return Answer(response.headers, content)

    def _url(self, path: str, query: Mapping[str, str]) -> URL:
        pairs = [f"{quote(name)}={quote(value, safe='')}" for name, value in query.items()]
        if self._endpoint.sas:
            pairs.append(self._endpoint.sas)
        tail = f"?{'&'.join(pairs)}" if pairs else ""
        return URL(f"{self._endpoint.url}{path}{tail}", encoded=True)

    async def _authorize(self, method: str, url: URL, headers: dict[str, str]) -> None:
        if self._endpoint.key is not None:
            headers["authorization"] = sign_request(
                self._endpoint.service,
                method,
                url,
                headers,
                account=self._endpoint.account,
                key=self._endpoint.key,
            )
        elif self._credential is not None:
            token = await self._credential.get_token(_SCOPE)
            headers["authorization"] = f"Bearer {token.token}"


def _error_code(body: bytes) -> str:
    try:
        found = ET.fromstring(body).find(".//{*}Code")  # noqa: S314 - from the account itself
    except ET.ParseError:
        found = None
    return found.text if found is not None and found.text else "no error code"
