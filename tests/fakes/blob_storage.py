"""Clients of a storage account in memory, as far as the handlers use `azure.storage.blob`."""

from __future__ import annotations

import functools
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from azure.core import MatchConditions
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
)
from azure.core.rest import HttpRequest
from azure.storage.blob import BlobPrefix

from tests.fakes.storage_account import (
    ACCOUNT,
    Blob,
    StorageAccount,
    not_found,
    storage_error,
)

Method = TypeVar("Method", bound=Callable[..., Any])
CallRest = Callable[[str, Callable[[], Any]], Any]
"""Does a call: its operation and its effect. What goes wrong on the way is the caller's."""


def remote(operation: str) -> Callable[[Method], Method]:
    """Make a method one call over the network, by its object's `call`: its body is the effect."""

    def decorate(method: Method) -> Method:
        def call(client: Any, *args: Any, **options: Any) -> Any:
            return client.call(operation, functools.partial(method, client, *args, **options))

        return cast("Method", call)

    return decorate


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
        self._name = self.container_name = name
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
            raise not_found(blob)
        if match_condition is MatchConditions.IfNotModified and there.etag != etag:
            raise storage_error(ResourceModifiedError, 412, "ConditionNotMet")
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
        self._container = self.container_name = container
        self._name = self.blob_name = name
        self.call = client.calls_to(container)

    def _find(self) -> Blob | None:
        return self._client.account.container(self._container).blobs.get(self._name)

    def _write(self, content: bytes, metadata: Mapping[str, str] | None = None) -> Blob:
        return self._client.account.write(self._container, self._name, content, metadata)

    def _require_none(self) -> None:
        if self._find() is not None:
            raise storage_error(ResourceExistsError, 409, "BlobAlreadyExists")

    def _get(self) -> Blob:
        blob = self._find()
        if blob is None:
            raise not_found(self._name)
        return blob

    @remote("properties")
    def exists(self) -> bool:
        return self._find() is not None

    @remote("put block")
    def stage_block(self, block: str, data: bytes, *, validate_content: bool = False) -> None:
        del validate_content
        self._client.account.container(self._container).staged[self._name, block] = data

    @remote("get block list")
    def get_block_list(self, which: str) -> Any:
        assert which == "uncommitted"
        staged = self._client.account.container(self._container).staged
        found = [
            SimpleNamespace(id=block, size=len(data))
            for (name, block), data in staged.items()
            if name == self._name
        ]
        return [], found

    def commit_block_list(
        self,
        blocks: list[Any],
        *,
        match_condition: MatchConditions,
        content_settings: Any = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        assert match_condition is MatchConditions.IfMissing
        del content_settings
        staged = self._client.account.container(self._container).staged
        content = b"".join(staged[self._name, block.id] for block in blocks)
        self.upload_blob(content, metadata=metadata)

    def download_blob(
        self,
        *,
        offset: int | None = None,
        length: int | None = None,
        etag: str | None = None,
        match_condition: MatchConditions | None = None,
    ) -> Any:
        del length  # no blob is large
        blob = self.call("download", self._get)
        if match_condition is MatchConditions.IfNotModified and etag != f'"{blob.etag}"':
            raise storage_error(ResourceModifiedError, 412, "ConditionNotMet")
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
            raise not_found(name)
        if source_match_condition is not None and source_etag != f'"{source.etag}"':
            raise storage_error(ResourceModifiedError, 412, "SourceConditionNotMet")
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
                raise storage_error(ResourceModifiedError, 412, "ConditionNotMet")
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
            raise storage_error(ResourceModifiedError, 412, "ConditionNotMet")
        self._client.account.delete(self._container, self._name)

    @remote("create append blob")
    def create_append_blob(
        self, *, match_condition: MatchConditions, etag: str | None = None
    ) -> None:
        if match_condition is MatchConditions.IfMissing:
            self._require_none()
        elif self._get().etag != etag:
            raise storage_error(ResourceModifiedError, 412, "ConditionNotMet")
        self._write(b"")

    @remote("append")
    def append_block(self, data: bytes) -> None:
        self._write(self._get().content + data)
