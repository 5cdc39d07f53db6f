"""A storage account in memory, as far as the handlers ask `azure.storage.blob` for it."""

from __future__ import annotations

import bisect
import functools
import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.core.rest import HttpRequest
from azure.storage.blob import BlobPrefix

Method = TypeVar("Method", bound=Callable[..., Any])
CallRest = Callable[[str, Callable[[], Any]], Any]
"""Does a call: its operation and its effect. What goes wrong on the way is the caller's."""
ACCOUNT = "landing"


def remote(operation: str) -> Callable[[Method], Method]:
    """Make a method one call over the network, by its object's `call`: its body is the effect."""

    def decorate(method: Method) -> Method:
        def call(client: Any, *args: Any, **options: Any) -> Any:
            return client.call(operation, functools.partial(method, client, *args, **options))

        return cast("Method", call)

    return decorate


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
        refusal = _error(ResourceNotFoundError, status, "ContainerNotFound")
        if status == 403:
            refusal = _error(ClientAuthenticationError, status, "AuthorizationPermissionMismatch")
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


class BlobServiceClient:
    """The client; its calls go over the network."""

    account_name = ACCOUNT
    url = f"https://{ACCOUNT}.blob.core.windows.net/"

    def __init__(self, account: StorageAccount, call_rest: CallRest) -> None:
        self.account = account
        self._call_rest = call_rest

    def get_container_client(self, container: str) -> ContainerClient:
        return ContainerClient(self, container)

    def get_blob_client(self, container: str, blob: str) -> BlobClient:
        return BlobClient(self, container, blob)

    def calls_to(self, container: str) -> CallRest:
        """What calls about a container go through."""

        def call(operation: str, effect: Callable[[], Any]) -> Any:
            def allowed() -> Any:
                self.account.check(container)
                return effect()

            return self._call_rest(operation, allowed)

        return call


class ContainerClient:
    api_version = "2026-01-01"

    def __init__(self, client: BlobServiceClient, name: str) -> None:
        self._client = client
        self._name = name
        self.call = client.calls_to(name)
        self.url = client.url + name
        self._pipeline = SimpleNamespace(run=self._answer)  # see `landing.listing`

    @property
    def blobs(self) -> MutableMapping[str, bytes]:
        """Name → content, for tests; these calls do not go over the network."""
        return _Contents(self._client.account, self._name)

    def _answer(self, request: HttpRequest, *, stream: bool) -> Any:
        """List Blobs, in one page."""
        assert stream
        asked = dict(parse_qsl(urlsplit(request.url).query))
        assert "delimiter" not in asked, "no zone of the simulation is large"
        page = list_blobs_page(self._list(asked.get("prefix", "")))
        response = SimpleNamespace(
            status_code=200, headers={}, iter_bytes=lambda: iter([page]), close=lambda: None
        )
        return SimpleNamespace(http_response=response)

    def get_blob_client(self, blob: str) -> BlobClient:
        return BlobClient(self._client, self._name, blob)

    def upload_blob(self, name: str, data: str | bytes, **options: Any) -> None:
        self.get_blob_client(name).upload_blob(data, **options)

    def download_blob(
        self, blob: str, *, offset: int | None = None, length: int | None = None
    ) -> Any:
        del length  # no blob is large
        return self.get_blob_client(blob).download_blob(offset=offset)

    @remote("delete")
    def delete_blob(
        self, blob: str, *, etag: str | None = None, match_condition: MatchConditions | None = None
    ) -> None:
        there = self._client.account.container(self._name).blobs.get(blob)
        if there is None:
            raise _not_found(blob)
        if match_condition is MatchConditions.IfNotModified and there.etag != etag:
            raise _error(ResourceModifiedError, 412, "ConditionNotMet")
        self._client.account.delete(self._name, blob)

    def list_blobs(
        self,
        name_starts_with: str = "",
        include: list[str] | None = None,
        results_per_page: int | None = None,
        start_from: str = "",
    ) -> Iterator[Any]:
        del include, results_per_page, start_from  # Azurite ignores the last one, too
        return iter([blob.listed() for blob in self._list(name_starts_with)])

    def list_blob_names(
        self, name_starts_with: str = "", results_per_page: int | None = None
    ) -> Iterator[str]:
        del results_per_page
        return iter([blob.name for blob in self._list(name_starts_with)])

    def walk_blobs(self, name_starts_with: str = "", delimiter: str = "/") -> Iterator[Any]:
        seen: dict[str, Any] = {}
        for blob in self._list(name_starts_with):
            rest = blob.name.removeprefix(name_starts_with)
            folder, slash, _ = rest.partition(delimiter)
            if slash:
                prefix: Any = BlobPrefix()
                prefix.name = name_starts_with + folder + delimiter
                seen.setdefault(prefix.name, prefix)
            else:
                seen[blob.name] = blob.listed()
        return iter(list(seen.values()))

    @remote("list")
    def _list(self, prefix: str) -> list[Blob]:
        return self._client.account.container(self._name).below(prefix)


class _Contents(MutableMapping[str, bytes]):
    def __init__(self, account: StorageAccount, container: str) -> None:
        self._account = account
        self._container = container

    def __getitem__(self, name: str) -> bytes:
        return self._account.container(self._container).blobs[name].content

    def __setitem__(self, name: str, content: bytes) -> None:
        self._account.write(self._container, name, content)

    def __delitem__(self, name: str) -> None:
        self._account.delete(self._container, name)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._account.container(self._container).names))

    def __len__(self) -> int:
        return len(self._account.container(self._container).names)


_ENTRY = (
    "<Blob><Name>{name}</Name><Properties><Last-Modified>{modified}</Last-Modified>"
    "<Etag>{etag}</Etag><Content-Length>{size}</Content-Length><Content-MD5>{md5}</Content-MD5>"
    "</Properties></Blob>"
)


def list_blobs_page(blobs: list[Blob]) -> bytes:
    """The service's answer, as far as it is read."""
    entries = [
        _ENTRY.format(
            name=escape(blob.name),
            modified=format_datetime(blob.last_modified, usegmt=True),
            etag=blob.etag,
            size=len(blob.content),
            md5=b64encode(blob.md5).decode(),
        )
        for blob in blobs
    ]
    return f"<EnumerationResults><Blobs>{''.join(entries)}</Blobs></EnumerationResults>".encode()


class BlobClient:
    def __init__(self, client: BlobServiceClient, container: str, name: str) -> None:
        self._client = client
        self._container = container
        self._name = name
        self.call = client.calls_to(container)

    def _find(self) -> Blob | None:
        return self._client.account.container(self._container).blobs.get(self._name)

    def _write(self, content: bytes, metadata: Mapping[str, str] | None = None) -> Blob:
        return self._client.account.write(self._container, self._name, content, metadata)

    def _require_none(self) -> None:
        if self._find() is not None:
            raise _error(ResourceExistsError, 409, "BlobAlreadyExists")

    def _get(self) -> Blob:
        blob = self._find()
        if blob is None:
            raise _not_found(self._name)
        return blob

    @remote("properties")
    def exists(self) -> bool:
        return self._find() is not None

    @remote("put block")
    def stage_block(self, block: str, data: bytes) -> None:
        self._client.account.container(self._container).staged[self._name, block] = data

    def commit_block_list(self, blocks: list[Any], *, match_condition: MatchConditions) -> None:
        assert match_condition is MatchConditions.IfMissing
        staged = self._client.account.container(self._container).staged
        self.upload_blob(b"".join(staged[self._name, block.id] for block in blocks))

    def download_blob(self, *, offset: int | None = None) -> Any:
        blob = self.call("download", self._get)
        content = blob.content[offset or 0 :]
        return SimpleNamespace(
            size=len(content),
            readall=lambda: content,
            chunks=lambda: iter([content]),
            properties=SimpleNamespace(etag=blob.etag, metadata=dict(blob.metadata)),
        )

    @property
    def url(self) -> str:
        return f"{self._client.url}{self._container}/{quote(self._name)}"

    @remote("copy")
    def start_copy_from_url(
        self,
        source_url: str,
        *,
        match_condition: MatchConditions,
        source_etag: str | None = None,
        source_match_condition: MatchConditions | None = None,
    ) -> dict[str, str]:
        """Copy Blob within the account, which ends at once."""
        assert match_condition is MatchConditions.IfMissing
        container, _, name = unquote(source_url.removeprefix(self._client.url)).partition("/")

        self._require_none()
        source = self._client.account.container(container).blobs.get(name)
        if source is None:
            raise _not_found(name)
        if source_match_condition is not None and source_etag != f'"{source.etag}"':
            raise _error(ResourceModifiedError, 412, "SourceConditionNotMet")
        self._write(source.content)
        return {"copy_status": "success"}

    @remote("properties")
    def get_blob_properties(self) -> Any:
        return self._get().listed()

    @remote("set metadata")
    def set_blob_metadata(self, metadata: Mapping[str, str]) -> None:
        self._write(self._get().content, metadata)

    @remote("upload")
    def upload_blob(
        self,
        data: str | bytes,
        *,
        overwrite: bool = False,
        metadata: Mapping[str, str] | None = None,
        etag: str | None = None,
        match_condition: MatchConditions | None = None,
    ) -> dict[str, str]:
        there = self._find()
        if match_condition is MatchConditions.IfNotModified:
            if there is None or there.etag != etag:
                raise _error(ResourceModifiedError, 412, "ConditionNotMet")
        elif not overwrite:
            self._require_none()
        return {
            "etag": self._write(data.encode() if isinstance(data, str) else data, metadata).etag
        }

    @remote("delete")
    def delete_blob(
        self, *, etag: str | None = None, match_condition: MatchConditions | None = None
    ) -> None:
        there = self._get()
        if match_condition is MatchConditions.IfNotModified and there.etag != etag:
            raise _error(ResourceModifiedError, 412, "ConditionNotMet")
        self._client.account.delete(self._container, self._name)

    @remote("create append blob")
    def create_append_blob(
        self, *, match_condition: MatchConditions, etag: str | None = None
    ) -> None:
        if match_condition is MatchConditions.IfMissing:
            self._require_none()
        elif self._get().etag != etag:
            raise _error(ResourceModifiedError, 412, "ConditionNotMet")
        self._write(b"")

    @remote("append")
    def append_block(self, data: bytes) -> None:
        self._write(self._get().content + data)


def _not_found(name: str) -> Exception:
    return _error(ResourceNotFoundError, 404, "BlobNotFound", name)


def _error(
    kind: type[HttpResponseError], status: int, code: str, text: str = ""
) -> HttpResponseError:
    error: Any = kind(f"{code} {text}")
    error.status_code, error.error_code = status, code
    return error
