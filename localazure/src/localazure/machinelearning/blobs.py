"""The storage accounts of jobs: clients, listings, retries of transient errors."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.storage.blob import BlobServiceClient, ContainerClient

from localazure.machinelearning.addresses import BlobPath
from localazure.machinelearning.blob_requests import BlobRequests, ListedBlob
from localazure.runtime.environment import Environment
from localazure.runtime.identity import STORAGE_AUDIENCE
from localazure.runtime.principal_credential import PrincipalCredential

T = TypeVar("T")

CONNECT_SECONDS = 5
READ_SECONDS = 60
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
# `retry_while_unavailable` retries: the SDK would block a job for a minute.
_CLIENT_OPTIONS: dict[str, Any] = {
    "retry_total": 0,
    "connection_timeout": CONNECT_SECONDS,
    "read_timeout": READ_SECONDS,
}
# Storage restarts within seconds on a laptop; a longer outage does not end by itself.
PATIENCE_SECONDS = 300.0
_SERVER_ERROR = 500
_TOO_MANY_REQUESTS = 429
_REQUEST_TIMEOUT = 408


@dataclass(frozen=True)
class RemoteFile:
    """One blob below a prefix.

    Attributes:
        path: its name below the prefix; for a single blob its last segment.
    """

    path: str
    blob: ListedBlob


class BlobStore:
    """The local storage accounts: reads, and clients that write. May be used by many threads.

    Args:
        environment: whose accounts.
        principal: whose roles decide. None is the workspace itself, which has the keys.
    """

    def __init__(self, environment: Environment, principal: str | None = None) -> None:
        self._environment = environment
        self._principal = principal
        self._services: dict[str, BlobServiceClient] = {}
        self._requests: dict[str, BlobRequests] = {}
        self._lock = threading.Lock()

    def container(self, where: BlobPath) -> ContainerClient:
        """Client of the container of a path."""
        with self._lock:
            service = self._services.get(where.account)
            if service is None:
                service = self._services[where.account] = self._open(where.account)
        return service.get_container_client(where.container)

    def _open(self, account: str) -> BlobServiceClient:
        environment = self._environment
        if self._principal is None:
            return BlobServiceClient.from_connection_string(
                environment.storage_connection_string(account), **_CLIENT_OPTIONS
            )
        return BlobServiceClient(
            environment.blob_tls_endpoint(account),
            credential=PrincipalCredential(environment, self._principal),
            connection_verify=str(environment.ca_bundle),
            **_CLIENT_OPTIONS,
        )

    def ensure_container(self, where: BlobPath) -> None:
        """Create the container of a path unless it is there."""
        try:
            self.container(where).create_container()
        except ResourceExistsError:
            return

    def list(self, source: BlobPath) -> Iterator[RemoteFile]:
        """The blob at the path itself, or else all blobs below it as a folder.

        Raises:
            AzureError: storage refused or is unavailable.
        """
        folder = f"{source.path}/" if source.path else ""
        for blob in self._reading(source).list(source.container, source.path):
            if blob.name == source.path:
                yield RemoteFile(blob.name.rpartition("/")[2], blob)
            elif blob.name.startswith(folder) and not blob.name.endswith("/"):
                yield RemoteFile(blob.name.removeprefix(folder), blob)

    def download(self, source: BlobPath, file: RemoteFile, target: Path) -> None:
        """Write exactly the version that was listed to a file.

        Each file is asked for again by itself: one failure among many files costs no other its
        turn.

        Raises:
            ResourceModifiedError: the blob was overwritten since.
            AzureError: storage refused, or was unavailable for `PATIENCE_SECONDS`.
        """

        def fetch() -> None:
            with target.open("wb") as out:
                if file.blob.size:
                    self._reading(source).download(source.container, file.blob, out)

        retry_while_unavailable(fetch)

    def _reading(self, where: BlobPath) -> BlobRequests:
        with self._lock:
            requests = self._requests.get(where.account)
            if requests is None:
                requests = self._requests[where.account] = self._open_requests(where.account)
            return requests

    def _open_requests(self, account: str) -> BlobRequests:
        environment = self._environment
        if self._principal is None:
            return BlobRequests.by_key(environment.storage_connection_string(account))
        credential = PrincipalCredential(environment, self._principal)
        return BlobRequests(
            environment.blob_tls_endpoint(account),
            lambda _url, _headers: f"Bearer {credential.get_token(STORAGE_AUDIENCE).token}",
            ssl.create_default_context(cafile=environment.ca_bundle),
        )

    def close(self) -> None:
        """Close the connections."""
        for each in (*self._services.values(), *self._requests.values()):
            each.close()


def is_transient(error: AzureError) -> bool:
    """Whether the same call may succeed later: storage is unavailable or busy."""
    if isinstance(error, ServiceRequestError | ServiceResponseError):
        return True
    if isinstance(error, HttpResponseError):
        status = error.status_code or 0
        return status >= _SERVER_ERROR or status in {_TOO_MANY_REQUESTS, _REQUEST_TIMEOUT}
    return False


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
        AzureError: the error was not transient, or the time is up.
    """
    started = clock()
    pause = FIRST_PAUSE_SECONDS
    while True:
        try:
            return action()
        except AzureError as error:
            is_late = (
                give_up_after_seconds is not None and clock() - started >= give_up_after_seconds
            )
            if is_late or not is_transient(error):
                raise
        sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
