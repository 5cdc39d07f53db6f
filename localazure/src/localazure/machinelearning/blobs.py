"""The storage accounts of jobs: their blobs, and retries of transient errors."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPMethod
from http.client import HTTPMessage
from pathlib import Path
from typing import TypeVar

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.blob_errors import BlobConflictError, BlobError
from localazure.machinelearning.blob_requests import BlobRequests, ListedBlob
from localazure.runtime.environment import Environment
from localazure.runtime.identity import STORAGE_AUDIENCE, TokenIssuer

T = TypeVar("T")

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
# Storage restarts within seconds on a laptop; a longer outage does not end by itself.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class RemoteFile:
    """One blob below a prefix.

    Attributes:
        path: its name below the prefix; for a single blob its last segment.
    """

    path: str
    blob: ListedBlob


class BlobStore:
    """The blobs of the local storage accounts. May be used by many threads.

    Every method raises a `BlobError` where storage refuses or is unavailable; `download` repeats
    its requests meanwhile.

    Args:
        environment: whose accounts.
        principal: whose roles decide. None is the workspace itself, which has the keys.
    """

    def __init__(self, environment: Environment, principal: str | None = None) -> None:
        self._environment = environment
        self._principal = principal
        self._accounts: dict[str, BlobRequests] = {}
        self._lock = threading.Lock()

    def ensure_container(self, where: BlobPath) -> None:
        """Create the container of a path unless it is there."""
        with contextlib.suppress(BlobConflictError):
            self._account(where).send(
                HTTPMethod.PUT, where.container, query={"restype": "container"}
            )

    def upload(self, where: BlobPath, content: bytes) -> str:
        """Write a block blob, and return its ETag, without quotes."""
        headers = {"x-ms-blob-type": "BlockBlob"}
        return _etag(self._put(where, content, headers=headers))

    def stage_block(self, where: BlobPath, block: str, content: bytes) -> None:
        """Upload a part of a block blob.

        Args:
            where: the blob.
            block: id, base64; those of a blob have one length.
            content: of the block.
        """
        self._put(where, content, query={"comp": "block", "blockid": block})

    def commit_blocks(self, where: BlobPath, blocks: Sequence[str]) -> str:
        """Make a block blob of blocks that were staged, and return its ETag, without quotes."""
        listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
        content = f"<BlockList>{listed}</BlockList>".encode()
        headers = {"x-ms-blob-content-type": "application/octet-stream"}
        return _etag(self._put(where, content, query={"comp": "blocklist"}, headers=headers))

    def create_append_blob(self, where: BlobPath) -> None:
        """Write an empty append blob."""
        self._put(where, b"", headers={"x-ms-blob-type": "AppendBlob"})

    def append(self, where: BlobPath, content: bytes, *, position: int) -> None:
        """Append to a blob that has `position` bytes.

        Raises:
            BlobModifiedError: it has another number.
            BlobError: storage refused or is unavailable.
        """
        headers = {"x-ms-blob-condition-appendpos": str(position)}
        self._put(where, content, query={"comp": "appendblock"}, headers=headers)

    def size(self, where: BlobPath) -> int:
        """Bytes of a blob.

        Raises:
            BlobNotFoundError: it is not there.
            BlobError: storage refused or is unavailable.
        """
        answer = self._account(where).send(HTTPMethod.HEAD, f"{where.container}/{where.path}")
        return int(answer["Content-Length"])

    def delete(self, where: BlobPath) -> None:
        """Delete a blob.

        Raises:
            BlobNotFoundError: it is not there.
            BlobError: storage refused or is unavailable.
        """
        self._account(where).send(HTTPMethod.DELETE, f"{where.container}/{where.path}")

    def _put(
        self,
        where: BlobPath,
        content: bytes,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HTTPMessage:
        path = f"{where.container}/{where.path}"
        return self._account(where).send(
            HTTPMethod.PUT, path, query=query, headers=headers, body=content
        )

    def list(self, source: BlobPath) -> Iterator[RemoteFile]:
        """The blob at the path itself, or else all blobs below it as a folder."""
        folder = f"{source.path}/" if source.path else ""
        for blob in self._account(source).list(source.container, source.path):
            if blob.name == source.path:
                yield RemoteFile(blob.name.rpartition("/")[2], blob)
            elif blob.name.startswith(folder) and not blob.name.endswith("/"):
                yield RemoteFile(blob.name.removeprefix(folder), blob)

    def download(self, source: BlobPath, file: RemoteFile, target: Path) -> None:
        """Write exactly the version that was listed to a file.

        Each file is asked for again by itself: one failure among many files costs no other its
        turn.

        Raises:
            BlobModifiedError: the blob was overwritten since.
            BlobError: storage refused, or was unavailable for `PATIENCE_SECONDS`.
        """

        def fetch() -> None:
            with target.open("wb") as out:
                if file.blob.size:
                    self._account(source).download(source.container, file.blob, out)

        retry_while_unavailable(fetch)

    def _account(self, where: BlobPath) -> BlobRequests:
        with self._lock:
            account = self._accounts.get(where.account)
            if account is None:
                account = self._accounts[where.account] = self._open(where.account)
            return account

    def _open(self, account: str) -> BlobRequests:
        environment, principal = self._environment, self._principal
        if principal is None:
            return BlobRequests.by_key(environment.storage_connection_string(account))
        issuer = TokenIssuer(environment.keys.identity_header, frozenset())

        def authorize(*_: object) -> str:
            token, _expiry = issuer.issue(STORAGE_AUDIENCE, now=time.time(), principal=principal)
            return f"Bearer {token}"

        # The CA of the state folder alone: certifi's roots take 25 ms to read.
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
    """Call an action; repeat it with growing pauses while storage is unavailable.

    Args:
        action: must be safe to repeat.
        give_up_after_seconds: None retries without end.
        sleep: pauses; injected by tests.
        clock: seconds; injected by tests.

    Raises:
        BlobError: the error was not transient, or the time is up.
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
