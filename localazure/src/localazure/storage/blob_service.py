"""Requests of the storage part itself to Azurite's Blob service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import quote

import aiohttp

from localazure.storage_client.rest import Endpoint, StorageError, StorageRest
from localazure.storage_client.service import Service


class BlobServiceError(RuntimeError):
    """Azurite answered a request of the storage part with an error."""


class BlobService:
    """Azurite's Blob endpoint, without the proxy.

    Args:
        session: connections to Azurite.
        origin: Azurite's origin, `http://127.0.0.1:PORT`.
        key_of: returns the key of an account, base64.
    """

    def __init__(
        self, session: aiohttp.ClientSession, origin: str, key_of: Callable[[str], str]
    ) -> None:
        self._session = session
        self._origin = origin
        self._key_of = key_of

    async def properties(self, path: str) -> Mapping[str, str] | None:
        """Return the headers of Get Blob Properties; None if the blob does not exist.

        Args:
            path: percent-encoded, the account first.

        Raises:
            BlobServiceError: the response is an error other than 404.
        """
        account, _, blob = path.removeprefix("/").partition("/")
        return await self._request("HEAD", account, blob, {}, HTTPStatus.NOT_FOUND)

    async def create_container(self, account: str, name: str) -> None:
        """Create a container unless it exists.

        Raises:
            BlobServiceError: Azurite refused the request.
        """
        query = {"restype": "container"}
        await self._request("PUT", account, quote(name), query, HTTPStatus.CONFLICT)

    async def _request(
        self, method: str, account: str, path: str, query: Mapping[str, str], expected: HTTPStatus
    ) -> Mapping[str, str] | None:
        """Return the headers of the answer; None for an expected error."""
        endpoint = Endpoint(
            url=f"{self._origin}/{account}",
            service=Service.BLOB,
            account=account,
            key=self._key_of(account),
        )
        try:
            answer = await StorageRest(self._session, endpoint).request(method, f"/{path}", query)
        except StorageError as error:
            if error.status == expected:
                return None
            raise BlobServiceError(f"Azurite refused a request: {error}") from error
        return answer.headers
