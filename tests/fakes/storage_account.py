"""A storage account in memory: its blobs, and the refusals of the service."""

from __future__ import annotations

import bisect
import functools
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)

ACCOUNT = "landing"


@dataclass(frozen=True)
class Blob:
    """One version of a blob."""

    name: str
    content: bytes
    etag: str
    last_modified: datetime
    metadata: Mapping[str, str]

    @functools.cached_property
    def md5(self) -> bytes:
        return hashlib.md5(self.content, usedforsecurity=False).digest()

    def listed(self) -> Any:
        """A blob in a listing."""
        return SimpleNamespace(
            name=self.name,
            size=len(self.content),
            etag=self.etag,
            last_modified=self.last_modified,
            metadata=dict(self.metadata),
            content_settings=SimpleNamespace(content_md5=bytearray(self.md5)),
            copy=SimpleNamespace(status=None),
        )


@dataclass
class Container:
    """The blobs of one container, and their names in order."""

    blobs: dict[str, Blob] = field(default_factory=dict[str, Blob])
    names: list[str] = field(default_factory=list[str])
    staged: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    """Name and id of a block that no list has committed yet → its bytes."""
    deleted: dict[str, Blob] = field(default_factory=dict[str, Blob])
    """The last content of blobs that were deleted."""

    def put(self, blob: Blob) -> None:
        if blob.name not in self.blobs:
            bisect.insort(self.names, blob.name)
        self.blobs[blob.name] = blob

    def delete(self, name: str) -> None:
        self.deleted[name] = self.blobs.pop(name)
        self.names.remove(name)

    def below(self, prefix: str) -> list[Blob]:
        start = bisect.bisect_left(self.names, prefix)
        found: list[Blob] = []
        for name in self.names[start:]:
            if not name.startswith(prefix):
                break
            found.append(self.blobs[name])
        return found


def _ignore(_container: str, _name: str, _blob: Blob | None) -> None:
    """Raise no event."""


class StorageAccount:
    """The stored blobs, and the receivers of their events."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._writes = 0
        self.containers: dict[str, Container] = {}
        self.refusals: dict[str, int] = {}
        """Container → status with which every call about it is refused, 403 or 404."""
        self.on_change: Callable[[str, str, Blob | None], None] = _ignore
        """Called with container, name, and the blob as it is now."""

    def container(self, name: str) -> Container:
        found = self.containers.get(name)
        if found is None:
            found = self.containers[name] = Container()
        return found

    def check(self, container: str) -> None:
        """Raise the refusal of calls about a container, if there is one."""
        status = self.refusals.get(container)
        if status is None:
            return
        refusal = storage_error(ResourceNotFoundError, status, "ContainerNotFound")
        if status == 403:
            refusal = storage_error(
                ClientAuthenticationError, status, "AuthorizationPermissionMismatch"
            )
        place = f"https://{ACCOUNT}.blob.core.windows.net/{container}"
        request = SimpleNamespace(method="GET", url=place)
        answer: Any = SimpleNamespace(status_code=status, request=request, headers={})
        refusal.response = answer
        raise refusal

    def write(
        self, container: str, name: str, content: bytes, metadata: Mapping[str, str] | None = None
    ) -> Blob:
        self._writes += 1
        blob = Blob(
            name=name,
            content=content,
            etag=f"0x{self._writes:X}",
            # The service has whole seconds.
            last_modified=self._clock().replace(microsecond=0),
            metadata=metadata or {},
        )
        self.container(container).put(blob)
        self.on_change(container, name, blob)
        return blob

    def delete(self, container: str, name: str) -> None:
        self.container(container).delete(name)
        self.on_change(container, name, None)


def not_found(name: str) -> Exception:
    return storage_error(ResourceNotFoundError, 404, "BlobNotFound", name)


def storage_error(
    kind: type[HttpResponseError], status: int, code: str, text: str = ""
) -> HttpResponseError:
    error: Any = kind(f"{code} {text}")
    error.status_code, error.error_code = status, code
    return error
