"""The few requests that the storage part itself makes to Azurite's Blob service."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDictProxy
from yarl import URL

from localazure.runtime.environment import STORAGE_ACCOUNT
from localazure.storage.shared_key import signed_headers

TIMEOUT = aiohttp.ClientTimeout(total=30)


class BlobServiceError(RuntimeError):
    """Azurite answered a request of the storage part with an error."""


class BlobService:
    """Azurite's Blob endpoint, without the proxy."""

    def __init__(self, session: aiohttp.ClientSession, origin: str) -> None:
        self._session = session
        self._origin = origin

    async def properties(self, path: str) -> CIMultiDictProxy[str] | None:
        """Headers of Get Blob Properties, None if the blob does not exist.

        Args:
            path: percent-encoded, the account first.

        Raises:
            BlobServiceError: the response is an error other than 404.
        """
        url = URL(self._origin + path, encoded=True)
        headers = signed_headers("HEAD", url.raw_path)
        async with self._session.head(url, headers=headers, timeout=TIMEOUT) as response:
            if response.status == HTTPStatus.NOT_FOUND:
                return None
            if response.status != HTTPStatus.OK:
                raise BlobServiceError(f"Azurite answered {response.status} to HEAD {path}")
            return response.headers

    async def create_container(self, name: str) -> None:
        """Make a container unless it exists.

        Raises:
            BlobServiceError: Azurite refused the request.
        """
        path = f"/{STORAGE_ACCOUNT}/{quote(name)}"
        headers = signed_headers("PUT", path, {"restype": "container"})
        url = URL(f"{self._origin}{path}?restype=container", encoded=True)
        async with self._session.put(
            # An added Content-Type would have to be signed.
            url,
            headers=headers,
            timeout=TIMEOUT,
            skip_auto_headers=("Content-Type",),
        ) as response:
            if response.status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
                raise BlobServiceError(
                    f"Azurite answered {response.status} to the creation of container {name}: "
                    f"{(await response.text())[:500]}"
                )
