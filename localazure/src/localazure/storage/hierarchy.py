"""Files and directories of hierarchical accounts, kept as blobs of Azurite.

A directory is an empty blob with the metadata `hdi_isfolder`, as the Blob service of such an
account shows it; blobs below a name make it a directory, too. What was appended to a file is a
block that is named by its position. A rename copies and deletes blob by blob: readers may see a
part of it, and it goes on after a crash (`localazure.storage.ledger`).
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from email.utils import format_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from localazure.storage.dfs_requests import Place
from localazure.storage.refusal import Refusal

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContentSettings
    from azure.storage.blob.aio import BlobClient, BlobServiceClient, ContainerClient

IS_FOLDER: Final = "hdi_isfolder"
# Blobs of a directory that are moved or deleted at a time.
MAX_AT_ONCE: Final = 8
DEFAULT_PAGE: Final = 5000
"""https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/list"""


class PathError(Exception):
    """The service refuses a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


# https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/create#responses
PATH_NOT_FOUND: Final = Refusal(
    HTTPStatus.NOT_FOUND, "PathNotFound", "The specified path does not exist."
)
_PATH_ALREADY_EXISTS: Final = Refusal(
    HTTPStatus.CONFLICT, "PathAlreadyExists", "The specified path already exists."
)
_SOURCE_NOT_FOUND: Final = Refusal(
    HTTPStatus.NOT_FOUND,
    "SourcePathNotFound",
    "The source path for a rename operation does not exist.",
)
_INTO_ITSELF: Final = Refusal(
    HTTPStatus.CONFLICT,
    "InvalidRenameSourcePath",
    "The source directory cannot be the same as the destination directory, nor can the "
    "destination be a subdirectory of the source directory.",
)
_NO_PARENT: Final = Refusal(
    HTTPStatus.NOT_FOUND,
    "RenameDestinationParentPathNotFound",
    "The parent directory of the destination path does not exist.",
)
_NOT_APPENDED: Final = Refusal(
    HTTPStatus.CONFLICT,
    "InvalidFlushOperation",
    "The resource was created or modified by the Blob Service API and cannot be written to by the "
    "Data Lake Storage Service API.",
)
_NOT_CONTIGUOUS: Final = Refusal(
    HTTPStatus.BAD_REQUEST,
    "InvalidFlushPosition",
    "The uploaded data is not contiguous or the position query parameter value is not equal to the "
    "length of the file after appending the uploaded data.",
)
DIRECTORY_NOT_EMPTY: Final = Refusal(
    HTTPStatus.CONFLICT,
    "DirectoryNotEmpty",
    "The recursive query parameter value must be true to delete a non-empty directory.",
)


class Kind(StrEnum):
    """The kind of a path."""

    FILE = "file"
    DIRECTORY = "directory"


class Hierarchy:
    """Operations on files and directories.

    All raise `PathError` where the service refuses, and `azure.core.exceptions.AzureError` where
    Azurite does, or cannot be reached.

    Args:
        connection_string: of an account, to Azurite itself.
    """

    def __init__(self, connection_string: Callable[[str], str]) -> None:
        self._connection_string = connection_string
        self._clients: dict[str, BlobServiceClient] = {}

    async def close(self) -> None:
        """End the connections to Azurite."""
        for client in self._clients.values():
            await client.close()

    async def kind(self, place: Place) -> Kind | None:
        """The kind of the path; None where there is none."""
        if not place.name:
            return Kind.DIRECTORY
        blob = await self._properties(place)
        if blob is not None:
            return _kind_of(blob)
        async for _ in self._below(place):
            return Kind.DIRECTORY
        return None

    async def create(
        self,
        place: Place,
        kind: Kind,
        *,
        settings: ContentSettings,
        metadata: Mapping[str, str],
        conditions: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """Create an empty file, or a directory, with the directories above it.

        An existing file is overwritten, an existing directory stays as it is.

        Returns:
            Its `etag` and `last_modified`.
        """
        found = await self.kind(place)
        if found is not None and (found is not kind or "If-None-Match" in conditions):
            raise PathError(_PATH_ALREADY_EXISTS)
        if found is Kind.DIRECTORY:
            return await self._ensure_directory(place)
        parent = place.parent
        while parent.name:
            if await self.kind(parent) is Kind.FILE:
                raise PathError(_PATH_ALREADY_EXISTS)
            await self._ensure_directory(parent)
            parent = parent.parent
        return await self._blob(place).upload_blob(
            b"",
            overwrite=True,
            content_settings=settings,
            metadata={**metadata, **({IS_FOLDER: "true"} if kind is Kind.DIRECTORY else {})},
            headers=dict(conditions),
        )

    async def append(self, place: Place, position: int, data: bytes) -> None:
        """Keep data for a flush; it is not part of the file until then."""
        await self._blob(place).stage_block(_block_id(position), data)

    async def flush(
        self,
        place: Place,
        position: int,
        *,
        settings: ContentSettings,
        conditions: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """Make what was appended part of the file, which is `position` bytes long then."""
        from azure.storage.blob import BlobBlock  # noqa: PLC0415 - 0.3 s of the part's start

        blob = await self._properties(place)
        committed, uncommitted = await self._blob(place).get_block_list("all")
        length = sum(block.size for block in committed)
        if blob is not None and length != blob.size:
            raise PathError(_NOT_APPENDED)
        appended = {block.id: block for block in uncommitted}
        blocks = list(committed)
        while length < position and (block := appended.get(_block_id(length))) is not None:
            blocks.append(block)
            length += block.size
        if length != position:
            raise PathError(_NOT_CONTIGUOUS)
        if blob is not None:
            sent = {name: value for name, value in settings.items() if value}
            settings = blob.content_settings
            settings.content_md5 = None
            settings.update(sent)
        return await self._blob(place).commit_block_list(
            [BlobBlock(block.id) for block in blocks],
            content_settings=settings,
            metadata=None if blob is None else blob.metadata,
            headers=dict(conditions),
        )

    async def check_rename(self, source: Place, destination: Place, *, replaces: bool) -> Kind:
        """The kind of a path that can be renamed.

        Args:
            source: what is renamed.
            destination: its new place.
            replaces: whether a file there may be replaced.
        """
        kind = await self.kind(source)
        if kind is None:
            raise PathError(_SOURCE_NOT_FOUND)
        if source.contains(destination):
            raise PathError(_INTO_ITSELF)
        if await self.kind(destination.parent) is not Kind.DIRECTORY:
            raise PathError(_NO_PARENT)
        there = await self.kind(destination)
        is_replaced = replaces and there is kind
        if there is not None and not (is_replaced and await self.is_empty(destination)):
            raise PathError(_PATH_ALREADY_EXISTS)
        return kind

    async def is_empty(self, place: Place) -> bool:
        """Whether nothing is below a place; true for a file."""
        async for _ in self._below(place):
            return False
        return True

    async def rename(self, source: Place, destination: Place, kind: Kind) -> None:
        """Rename, or go on with a rename that was begun; see `check_rename`."""
        if kind is Kind.DIRECTORY:
            await self._ensure_directory(destination)
            names = [blob.name async for blob in self._below(source)]
            # Files first: while one is left, the source is still a directory.
            await self._each(names, lambda name: self._move(source, destination, name))
        await self._move(source, destination, source.name)

    async def delete(self, place: Place) -> None:
        """Delete a file or a directory with all that is below it."""
        names = [blob.name async for blob in self._below(place)]
        await self._each([*names, place.name], lambda name: self._delete(place, name))

    async def list(self, place: Place, *, is_recursive: bool) -> list[dict[str, str]]:
        """Paths below a directory in the order of their names, as the service describes them."""
        if place.name and await self.kind(place) is not Kind.DIRECTORY:
            raise PathError(PATH_NOT_FOUND)
        paths: dict[str, dict[str, str]] = {}
        top = f"{place.name}/" if place.name else ""
        async for blob in self._below(place):
            parts = blob.name.removeprefix(top).split("/")
            for depth in range(1, len(parts)):
                name = top + "/".join(parts[:depth])
                paths.setdefault(name, {"name": name, "isDirectory": "true"})
            paths[blob.name] = _described(blob)
        return [
            paths[name]
            for name in sorted(paths)
            if is_recursive or "/" not in name.removeprefix(top)
        ]

    # --- blobs ---------------------------------------------------------------------------------

    async def _ensure_directory(self, place: Place) -> Mapping[str, Any]:
        blob = await self._properties(place)
        if blob is not None:
            return {"etag": blob.etag, "last_modified": blob.last_modified}
        return await self._blob(place).upload_blob(b"", metadata={IS_FOLDER: "true"})

    async def _move(self, source: Place, destination: Place, name: str) -> None:
        """Move one blob to the same place below another directory; nothing where it was moved."""
        old = self._container(source).get_blob_client(name)
        moved = Place(
            destination.account,
            destination.filesystem,
            destination.name + name.removeprefix(source.name),
        )
        try:
            await self._blob(moved).start_copy_from_url(old.url, requires_sync=False)
            await old.delete_blob(delete_snapshots="include")
        except ResourceNotFoundError:
            if await old.exists():
                raise

    async def _delete(self, place: Place, name: str) -> None:
        try:
            blob = self._container(place).get_blob_client(name)
            await blob.delete_blob(delete_snapshots="include")
        except ResourceNotFoundError:
            return

    async def _each(self, names: Iterable[str], work: Callable[[str], Any]) -> None:
        slots = asyncio.Semaphore(MAX_AT_ONCE)

        async def one(name: str) -> None:
            async with slots:
                await work(name)

        await asyncio.gather(*map(one, names))

    async def _properties(self, place: Place) -> BlobProperties | None:
        try:
            return await self._blob(place).get_blob_properties()
        except ResourceNotFoundError:
            return None

    async def _below(self, place: Place) -> AsyncIterator[BlobProperties]:
        prefix = f"{place.name}/" if place.name else None
        listed = self._container(place).list_blobs(name_starts_with=prefix, include=["metadata"])
        async for blob in listed:
            yield blob

    def _blob(self, place: Place) -> BlobClient:
        return self._container(place).get_blob_client(place.name)

    def _container(self, place: Place) -> ContainerClient:
        client = self._clients.get(place.account)
        if client is None:
            from azure.storage.blob.aio import BlobServiceClient  # noqa: PLC0415 - as above

            text = self._connection_string(place.account)
            client = BlobServiceClient.from_connection_string(text, retry_total=0)
            self._clients[place.account] = client
        return client.get_container_client(place.filesystem)


def refusal_of(error: HttpResponseError) -> Refusal:
    """The service's answer where Azurite refused."""
    # The SDK's enum, or the text of a code that it does not know.
    known = getattr(error, "error_code", None) or "InternalError"
    code = str(getattr(known, "value", known))
    if code == "BlobNotFound":
        return PATH_NOT_FOUND
    if code == "BlobAlreadyExists":
        return _PATH_ALREADY_EXISTS
    if code == "ContainerNotFound":
        code = "FilesystemNotFound"
    status = HTTPStatus(error.status_code or HTTPStatus.INTERNAL_SERVER_ERROR)
    return Refusal(status, code, error.message.partition("\n")[0])


def page(
    paths: list[dict[str, str]], size: int, continuation: str
) -> tuple[list[dict[str, str]], str]:
    """So many paths behind a continuation token, and the next token, empty at the end."""
    after = base64.urlsafe_b64decode(continuation).decode()
    rest = [path for path in paths if not after or path["name"] > after]
    is_last = len(rest) <= size
    token = "" if is_last else base64.urlsafe_b64encode(rest[size - 1]["name"].encode()).decode()
    return rest[:size], token


def _described(blob: BlobProperties) -> dict[str, str]:
    described = {
        "name": blob.name,
        "etag": blob.etag,
        "lastModified": format_datetime(blob.last_modified, usegmt=True),
        "contentLength": str(blob.size),
    }
    return described | ({"isDirectory": "true"} if _kind_of(blob) is Kind.DIRECTORY else {})


def _kind_of(blob: BlobProperties) -> Kind:
    metadata: Mapping[str, str] = blob.metadata or {}
    return Kind.DIRECTORY if metadata.get(IS_FOLDER) == "true" else Kind.FILE


def _block_id(position: int) -> str:
    return f"{position:020d}"
