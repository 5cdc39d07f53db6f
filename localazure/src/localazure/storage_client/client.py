"""The client of a storage service on the event loop, without the SDK.

Bindings of tables pass JSON through. azure-data-tables would convert it to Python types and back,
and so change numbers, times and `@odata.type` annotations (docs/decisions/0001-dependencies.md).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import aiohttp
from yarl import URL

from localazure.storage_client import blobs
from localazure.storage_client.blobs import Blob
from localazure.storage_client.endpoint import (
    SCOPE,
    Answer,
    ConflictError,
    Endpoint,
    NotFoundError,
    Request,
    StorageError,
    refusal,
)

TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=30)


class StorageClient:
    """One service of one account. All methods raise `StorageError`.

    Args:
        session: the HTTP session.
        endpoint: the service's endpoint.
        credential: an async TokenCredential, if the endpoint needs an identity.
        pauses_seconds: before the repetitions of a request whose error is transient.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        endpoint: Endpoint,
        credential: Any = None,
        *,
        pauses_seconds: Sequence[float] = (),
    ) -> None:
        self.endpoint: Final = endpoint
        self._session = session
        self._credential = credential
        self._pauses_seconds = pauses_seconds

    async def send(self, request: Request) -> Answer:
        """Send a request; repeat it after each pause while storage is unavailable or busy."""
        for pause_seconds in self._pauses_seconds:
            try:
                return await self._send(request)
            except StorageError as error:
                if not error.is_transient:
                    raise
            await asyncio.sleep(pause_seconds)
        return await self._send(request)

    async def _send(self, request: Request) -> Answer:
        token = None
        if self._credential is not None:
            token = (await self._credential.get_token(SCOPE)).token
        url, headers = self.endpoint.prepare(request, token)
        try:
            async with self._session.request(
                request.method,
                URL(url, encoded=True),
                headers=headers,
                data=request.body or None,
                timeout=TIMEOUT,
                # If aiohttp added a Content-Type, it would have to be signed.
                skip_auto_headers=("Content-Type",),
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            what = f"{request.method} /{request.path}: {type(error).__name__}: {error}"
            raise StorageError(what) from error
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise refusal(request, response.status, response.headers, body)
        return Answer(response.headers, body)

    async def list_blobs(self, container: str, prefix: str = "") -> list[Blob]:
        """The blobs whose names start with a prefix; none if there is no container."""
        listed: list[Blob] = []
        marker = ""
        while True:
            try:
                answer = await self.send(blobs.list_blobs(container, prefix, marker=marker))
            except NotFoundError:
                return listed
            page = blobs.parse_page(answer.body)
            listed += page.blobs
            marker = page.marker
            if not marker:
                return listed

    async def upload(self, container: str, name: str, content: bytes) -> None:
        """Write a blob; create the container if it is missing."""
        request = blobs.upload(f"{container}/{name}", content)
        try:
            await self.send(request)
        except NotFoundError:
            await self.create_container(container)
            await self.send(request)

    async def create_container(self, name: str) -> None:
        """Create a container unless it exists."""
        with contextlib.suppress(ConflictError):
            await self.send(blobs.create_container(name))
