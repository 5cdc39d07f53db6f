"""The few requests that the storage part itself makes to Azurite's Blob service."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from localazure.storage_client.service import Service
from localazure.storage_client.signature import sign_request

API_VERSION: Final = "2021-12-02"
TIMEOUT = aiohttp.ClientTimeout(total=30)


class BlobServiceError(RuntimeError):
    """Azurite answered a request of the storage part with an error."""


class BlobService:
    """Azurite's Blob endpoint, without the proxy.

    Args:
        session: connections to Azurite.
        origin: Azurite's own, `http://127.0.0.1:PORT`.
        key_of: the key of an account, base64.
    """

    def __init__(
        self, session: aiohttp.ClientSession, origin: str, key_of: Callable[[str], str]
    ) -> None:
        self._session = session
        self._origin = origin
        self._key_of = key_of

    async def properties(self, path: str) -> CIMultiDictProxy[str] | None:
        """Headers of Get Blob Properties, None if the blob does not exist.

        Args:
            path: percent-encoded, the account first.

        Raises:
            BlobServiceError: the response is an error other than 404.
        """
        url = URL(self._origin + path, encoded=True)
        headers = self._headers("HEAD", url)
        async with self._session.head(url, headers=headers, timeout=TIMEOUT) as response:
            if response.status == HTTPStatus.NOT_FOUND:
                return None
            if response.status != HTTPStatus.OK:
                raise BlobServiceError(f"Azurite answered {response.status} to HEAD {path}")
            return response.headers

    async def create_container(self, account: str, name: str) -> None:
        """Make a container unless it exists.

        Raises:
            BlobServiceError: Azurite refused the request.
        """
        url = URL(f"{self._origin}/{account}/{quote(name)}?restype=container", encoded=True)
        async with self._session.put(
            url,
            headers=self._headers("PUT", url),
            timeout=TIMEOUT,
            # An added Content-Type would have to be signed.
            skip_auto_headers=("Content-Type",),
        ) as response:
            if response.status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
                raise BlobServiceError(
                    f"Azurite answered {response.status} to the creation of container {name} in "
                    f"{account}: {(await response.text())[:500]}"
                )

    def _headers(self, method: str, url: URL) -> dict[str, str]:
        headers = {
            "x-ms-date": format_datetime(datetime.now(UTC), usegmt=True),
            "x-ms-version": API_VERSION,
        }
        account = url.raw_path.split("/")[1]
        signature = sign_request(
            Service.BLOB, method, url, headers, account=account, key=self._key_of(account)
        )
        return {**headers, "Authorization": signature}
