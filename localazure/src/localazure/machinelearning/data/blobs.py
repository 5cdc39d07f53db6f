"""Blobs of the local storage accounts, and retries of transient errors."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from http import HTTPMethod
from http.client import HTTPMessage
from pathlib import Path
from typing import TypeVar

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.data.blob_requests import (
    BlobConflictError,
    BlobError,
    BlobModifiedError,
    BlobNotFoundError,
    BlobRequests,
    ListedBlob,
)
from localazure.runtime.environment import LOOPBACK, Environment
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer

T = TypeVar("T")

# The service's limit for one append is 100 MiB since version 2022-11-02, 4 MiB before.
# https://learn.microsoft.com/rest/api/storageservices/append-block
APPEND_BYTES = 4 * 1024 * 1024
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
# Local storage restarts within seconds; a longer outage needs the user.
PATIENCE_SECONDS = 300.0


class BlobStore:
    """The blobs of the local storage accounts; thread-safe.

    Every method raises a `BlobError` if storage refuses or is unavailable; `download` first
    retries for `PATIENCE_SECONDS`.

    Args:
        environment: has the accounts.
        principal: its roles decide on access. None: the workspace itself, with the account keys.
    """

    def __init__(self, environment: Environment, principal: str | None = None) -> None:
        self._environment = environment
        self._principal = principal
        self._accounts: dict[str, BlobRequests] = {}
        self._lock = threading.Lock()

    def ensure_container(self, target: BlobPath) -> None:
        """Create the container of a path unless it exists."""
        with contextlib.suppress(BlobConflictError):
            container = BlobPath(target.container, "", target.account)
            self._send(container, query={"restype": "container"})

    def upload(self, target: BlobPath, content: bytes) -> str:
        """Write a block blob, and return its ETag, without quotes."""
        headers = {"x-ms-blob-type": "BlockBlob"}
        return _etag(self._send(target, content, headers=headers))

    def stage_block(self, target: BlobPath, block: str, content: bytes) -> None:
        """Upload a block of a block blob.

        Args:
            target: the blob.
            block: id, base64; all ids of a blob must have the same length.
            content: of the block.
        """
        self._send(target, content, query={"comp": "block", "blockid": block})

    def commit_blocks(self, target: BlobPath, blocks: Sequence[str]) -> str:
        """Commit staged blocks as a block blob, and return its ETag, without quotes."""
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        content = f"<BlockList>{listed}</BlockList>".encode()
        headers = {"x-ms-blob-content-type": "application/octet-stream"}
        return _etag(self._send(target, content, query={"comp": "blocklist"}, headers=headers))

    def create_append_blob(self, target: BlobPath) -> None:
        """Create an empty append blob."""
        self._send(target, b"", headers={"x-ms-blob-type": "AppendBlob"})

    def append(self, target: BlobPath, content: bytes, *, position: int) -> None:
        """Append to a blob that has `position` bytes.

        Raises:
            BlobModifiedError: the blob has another size.
            BlobError: storage refused or is unavailable.
        """
        headers = {"x-ms-blob-condition-appendpos": str(position)}
        self._send(target, content, query={"comp": "appendblock"}, headers=headers)

    def size(self, target: BlobPath) -> int:
        """The size of a blob in bytes.

        Raises:
            BlobNotFoundError: the blob does not exist.
            BlobError: storage refused or is unavailable.
        """
        return int(self._send(target, method=HTTPMethod.HEAD)["Content-Length"])

    def delete(self, target: BlobPath) -> None:
        """Delete a blob.

        Raises:
            BlobNotFoundError: the blob does not exist.
            BlobError: storage refused or is unavailable.
        """
        self._send(target, method=HTTPMethod.DELETE)

    def _send(
        self,
        target: BlobPath,
        content: bytes = b"",
        *,
        method: HTTPMethod = HTTPMethod.PUT,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPMessage:
        path = f"{target.container}/{target.path}" if target.path else target.container
        return self._account(target).send(method, path, query=query, headers=headers, body=content)

    def list(self, source: BlobPath) -> Iterator[ListedBlob]:
        """Yield the blob at the path, or all blobs below the path if it is a folder."""
        folder = f"{source.path}/" if source.path else ""
        for blob in self._account(source).list(source.container, source.path):
            if blob.name == source.path:
                yield replace(blob, path=blob.name.rpartition("/")[2])
            elif blob.name.startswith(folder) and not blob.name.endswith("/"):
                yield replace(blob, path=blob.name.removeprefix(folder))

    def download(self, source: BlobPath, blob: ListedBlob, target: Path) -> None:
        """Write a blob to a file, in exactly the version that was listed.

        Each file is retried on its own, so that a failure does not repeat other downloads.

        Raises:
            BlobModifiedError: the blob was overwritten after the listing.
            BlobError: storage refused, or was unavailable for `PATIENCE_SECONDS`.
        """

        def fetch() -> None:
            with target.open("wb") as out:
                if blob.size:
                    self._account(source).download(source.container, blob, out)

        retry_while_unavailable(fetch)

    def _account(self, target: BlobPath) -> BlobRequests:
        with self._lock:
            account = self._accounts.get(target.account)
            if account is None:
                account = self._accounts[target.account] = self._open(target.account)
            return account

    def _open(self, account: str) -> BlobRequests:
        environment, principal = self._environment, self._principal
        if principal is None:
            # Imported here: a job's runner has an identity, and loads neither.
            from yarl import URL  # noqa: PLC0415

            from localazure.storage_client.signature import Service, sign_request  # noqa: PLC0415

            key = environment.storage_key(account)

            def sign(method: HTTPMethod, url: str, headers: Mapping[str, str]) -> str:
                signed = URL(url, encoded=True)
                return sign_request(Service.BLOB, method, signed, headers, account=account, key=key)

            return BlobRequests(f"http://{LOOPBACK}:{environment.ports.blob}/{account}", sign)
        issuer = TokenIssuer(environment.keys.identity_header, frozenset())

        def authorize(*_: object) -> str:
            token, _expiry = issuer.issue(STORAGE_AUDIENCE, now=time.time(), principal=principal)
            return f"Bearer {token}"

        # Only the state folder's CA: to load certifi's root certificates takes 25 ms.
        tls = ssl.create_default_context(cafile=environment.ca)
        return BlobRequests(environment.blob_tls_endpoint(account), authorize, tls)

    def close(self) -> None:
        """Close the connections."""
        for each in self._accounts.values():
            each.close()


def _etag(headers: HTTPMessage) -> str:
    return headers["ETag"].strip('"')


def retry_while_unavailable(
    action: Callable[[], T],
    *,
    give_up_after_seconds: float | None = PATIENCE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """Call an action; retry it with growing pauses while storage is unavailable.

    Args:
        action: must be safe to repeat.
        give_up_after_seconds: None retries forever.
        sleep: pauses; injected by tests.
        clock: seconds; injected by tests.

    Raises:
        BlobError: the error was not transient, or the time has run out.
    """
    started = clock()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return action()
        except BlobError as error:
            is_late = (
                give_up_after_seconds is not None and clock() - started >= give_up_after_seconds
            )
            if is_late or not error.is_transient:
                raise
        sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


class AppendBlob:
    """One append blob, created on first use.

    Each append gives its expected position, so an append whose response was lost is not repeated.
    """

    def __init__(self, store: BlobStore, target: BlobPath) -> None:
        self._store = store
        self._target = target
        self._position: int | None = None

    def position(self) -> int:
        """The blob's size in bytes.

        Raises:
            BlobError: storage refused or is unavailable.
        """
        if self._position is None:
            try:
                self._position = self._store.size(self._target)
            except BlobNotFoundError:
                self._store.create_append_blob(self._target)
                self._position = 0
        return self._position

    def append(self, content: bytes) -> int:
        """Append bytes, and return how many of these bytes the blob now has.

        Raises:
            BlobError: storage refused or is unavailable.
        """
        position = self.position()
        try:
            self._store.append(self._target, content, position=position)
            self._position = position + len(content)
        except BlobModifiedError:
            # An earlier append succeeded, but its response was lost.
            self._position = self._store.size(self._target)
        return self._position - position
