"""Blobs of the local storage accounts, and retries of transient errors."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from localazure.machinelearning.addresses import BlobPath
from localazure.runtime.environment import Environment
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer
from localazure.storage_client import blobs
from localazure.storage_client.blobs import Blob
from localazure.storage_client.blocking_client import BlockingClient
from localazure.storage_client.endpoint import (
    Answer,
    ConflictError,
    NotFoundError,
    PreconditionError,
    Request,
    StorageError,
)

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

    Every method raises a `StorageError` if storage refuses or is unavailable; `download` first
    retries for `PATIENCE_SECONDS`.

    Args:
        environment: has the accounts.
        principal: its roles decide on access. None: the workspace itself, with the account keys.
    """

    def __init__(self, environment: Environment, principal: str | None = None) -> None:
        self._environment = environment
        self._principal = principal
        self._accounts: dict[str, BlockingClient] = {}
        self._lock = threading.Lock()

    def ensure_container(self, target: BlobPath) -> None:
        """Create the container of a path unless it exists."""
        with contextlib.suppress(ConflictError):
            self._send(target, blobs.create_container(target.container))

    def upload(self, target: BlobPath, content: bytes) -> str:
        """Write a block blob, and return its ETag, without quotes."""
        return _etag(self._send(target, blobs.upload(_name(target), content)))

    def stage_block(self, target: BlobPath, block: str, content: bytes) -> None:
        """Upload a block of a block blob; all ids of a blob must have the same length."""
        self._send(target, blobs.stage_block(_name(target), block, content))

    def commit_blocks(self, target: BlobPath, blocks: Sequence[str]) -> str:
        """Commit staged blocks as a block blob, and return its ETag, without quotes."""
        headers = {"x-ms-blob-content-type": "application/octet-stream"}
        return _etag(self._send(target, blobs.commit_blocks(_name(target), blocks, headers)))

    def create_append_blob(self, target: BlobPath) -> None:
        """Create an empty append blob."""
        self._send(target, blobs.upload(_name(target), b"", kind="AppendBlob"))

    def append(self, target: BlobPath, content: bytes, *, position: int) -> None:
        """Append to a blob that has `position` bytes.

        Raises:
            PreconditionError: the blob has another size.
        """
        self._send(target, blobs.append(_name(target), content, position=position))

    def size(self, target: BlobPath) -> int:
        """The size of a blob in bytes."""
        return int(self._send(target, blobs.properties(_name(target))).headers["Content-Length"])

    def delete(self, target: BlobPath) -> None:
        """Delete a blob."""
        self._send(target, blobs.delete(_name(target)))

    def _send(self, target: BlobPath, request: Request) -> Answer:
        return self._account(target).send(request)

    def list(self, source: BlobPath) -> Iterator[Blob]:
        """Yield the blob at the path, or all blobs below the path if it is a folder."""
        folder = f"{source.path}/" if source.path else ""
        for blob in self._account(source).list_blobs(source.container, source.path):
            if blob.name == source.path:
                yield replace(blob, path=blob.name.rpartition("/")[2])
            elif blob.name.startswith(folder) and not blob.name.endswith("/"):
                yield replace(blob, path=blob.name.removeprefix(folder))

    def download(self, source: BlobPath, blob: Blob, target: Path) -> None:
        """Write a blob to a file, in exactly the version that was listed.

        Each file is retried on its own, so that a failure does not repeat other downloads.

        Raises:
            PreconditionError: the blob was overwritten after the listing.
            StorageError: storage refused, or was unavailable for `PATIENCE_SECONDS`.
        """

        def fetch() -> None:
            with target.open("wb") as out:
                if blob.size:
                    self._account(source).download(source.container, blob, out)

        retry_while_unavailable(fetch)

    def _account(self, target: BlobPath) -> BlockingClient:
        with self._lock:
            account = self._accounts.get(target.account)
            if account is None:
                account = self._accounts[target.account] = self._open(target.account)
            return account

    def _open(self, account: str) -> BlockingClient:
        environment, principal = self._environment, self._principal
        if principal is None:
            return BlockingClient(environment.blob_endpoint(account))
        issuer = TokenIssuer(environment.keys.identity_header, frozenset())

        def token() -> str:
            return issuer.issue(STORAGE_AUDIENCE, now=time.time(), principal=principal)[0]

        # Only the state folder's CA: to load certifi's root certificates takes 25 ms.
        tls = ssl.create_default_context(cafile=environment.ca)
        return BlockingClient(environment.blob_endpoint(account, is_identity=True), token, tls)

    def close(self) -> None:
        """Close the connections."""
        for each in self._accounts.values():
            each.close()


def _name(target: BlobPath) -> str:
    return f"{target.container}/{target.path}"


def _etag(answer: Answer) -> str:
    return answer.headers["ETag"].strip('"')


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
        StorageError: the error was not transient, or the time has run out.
    """
    started = clock()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return action()
        except StorageError as error:
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
            StorageError: storage refused or is unavailable.
        """
        if self._position is None:
            try:
                self._position = self._store.size(self._target)
            except NotFoundError:
                self._store.create_append_blob(self._target)
                self._position = 0
        return self._position

    def append(self, content: bytes) -> int:
        """Append bytes, and return how many of these bytes the blob now has.

        Raises:
            StorageError: storage refused or is unavailable.
        """
        position = self.position()
        try:
            self._store.append(self._target, content, position=position)
            self._position = position + len(content)
        except PreconditionError:
            # An earlier append succeeded, but its response was lost.
            self._position = self._store.size(self._target)
        return self._position - position
