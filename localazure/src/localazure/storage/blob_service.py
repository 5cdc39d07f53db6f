"""Requests of the storage part itself to Azurite's Blob service."""

from __future__ import annotations

from collections.abc import Callable
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

    async def create_container(self, account: str, name: str) -> None:
        """Create a container unless it exists.

        Raises:
            BlobServiceError: Azurite refused the request.
        """
        endpoint = Endpoint(
            url=f"{self._origin}/{account}",
            service=Service.BLOB,
            account=account,
            key=self._key_of(account),
        )
        client = StorageRest(self._session, endpoint)
        try:
            await client.request("PUT", f"/{quote(name)}", {"restype": "container"})
        except StorageError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise BlobServiceError(f"Azurite refused a request: {error}") from error
