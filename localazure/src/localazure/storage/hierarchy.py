"""Files and directories of hierarchical accounts, kept as blobs of Azurite.

A directory is an empty blob with the metadata `hdi_isfolder`, as the Blob service of such an
account shows it; blobs below a name make it a directory, too. Data appended to a file is a block
named by its position. A rename or a deletion is a single change of Azurite's metadata
(`azurite/hierarchical_paths.js`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypedDict

from localazure.storage.dfs_requests import Place
from localazure.storage.path_listing import IS_FOLDER, Page, is_directory, page_of
from localazure.storage.refusal import Refusal

if TYPE_CHECKING:  # loading the SDK takes as long as the rest of the part
    from azure.core.exceptions import HttpResponseError
    from azure.storage.blob import BlobProperties, ContentSettings
    from azure.storage.blob.aio import BlobClient, BlobServiceClient, ContainerClient


class PathError(Exception):
    """The service refuses a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


EVENT_HEADER: Final = "localazure-event"
"""Tells `azurite/blob_events.js` which event a change has, in JSON; `null` if it has none."""


class RequestIds(TypedDict):
    """The ids of a request of a client, as in its event."""

    requestId: str
    clientRequestId: str


# https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/create#responses
PATH_NOT_FOUND: Final = Refusal(
    HTTPStatus.NOT_FOUND, "PathNotFound", "The specified path does not exist."
)
_PATH_ALREADY_EXISTS: Final = Refusal(
    HTTPStatus.CONFLICT, "PathAlreadyExists", "The specified path already exists."
)
SOURCE_NOT_FOUND: Final = Refusal(
    HTTPStatus.NOT_FOUND,
    "SourcePathNotFound",
    "The source path for a rename operation does not exist.",
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


class Kind(StrEnum):
    """The kind of a path."""

    FILE = "file"
    DIRECTORY = "directory"


class Hierarchy:
    """Operations on files and directories.

    All raise `PathError` if the service would refuse, and `azure.core.exceptions.AzureError` if
    Azurite refuses or cannot be reached.

    Args:
        connection_string: an account's connection string, directly to Azurite.
    """

    def __init__(self, connection_string: Callable[[str], str]) -> None:
        self._connection_string = connection_string
        self._clients: dict[str, BlobServiceClient] = {}

    async def close(self) -> None:
        """Close the connections to Azurite."""
        for client in self._clients.values():
            await client.close()

    async def kind(self, place: Place) -> Kind | None:
        """Return the kind of a path; None if it does not exist."""
        if not place.name:
            return Kind.DIRECTORY
        blob = await self._properties(place)
        if blob is not None:
            return _kind_of(blob)
        return None if await self._is_empty(place) else Kind.DIRECTORY

    async def create(
        self,
        place: Place,
        kind: Kind,
        *,
        settings: ContentSettings,
        metadata: Mapping[str, str],
        conditions: Mapping[str, str],
        ids: RequestIds,
    ) -> Mapping[str, Any]:
        """Create an empty file, or a directory, with its parent directories.

        An existing file is overwritten; an existing directory is unchanged.

        Returns:
            The path's `etag` and `last_modified`.
        """
        found = await self.kind(place)
        if found is not None and (found is not kind or "If-None-Match" in conditions):
            raise PathError(_PATH_ALREADY_EXISTS)
        if found is Kind.DIRECTORY:
            return await self.ensure_directory(place)
        parent = place.parent
        while parent.name:
            if await self.kind(parent) is Kind.FILE:
                raise PathError(_PATH_ALREADY_EXISTS)
            await self.ensure_directory(parent)
            parent = parent.parent
        is_folder = kind is Kind.DIRECTORY
        return await self._blob(place).upload_blob(
            b"",
            overwrite=True,
            content_settings=settings,
            metadata={**metadata, **({IS_FOLDER: "true"} if is_folder else {})},
            headers={**conditions, **_event(ids, "CreateDirectory" if is_folder else "CreateFile")},
        )

    async def append(self, place: Place, position: int, data: bytes) -> None:
        """Stage data, which becomes part of the file with a flush."""
        await self._blob(place).stage_block(_block_id(position), data)

    async def flush(
        self,
        place: Place,
        position: int,
        *,
        settings: ContentSettings,
        conditions: Mapping[str, str],
        ids: RequestIds | None,
    ) -> Mapping[str, Any]:
        """Add appended data to the file, which then has `position` bytes.

        Without ids the file is not closed: there is no event.
        """
        from azure.storage.blob import BlobBlock  # noqa: PLC0415 - as above

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
            headers={**conditions, **_event(ids, "FlushWithClose")},
        )

    async def ensure_directory(self, place: Place) -> Mapping[str, Any]:
        """Create the blob of a directory that exists only by the blobs below it; see `create`."""
        blob = await self._properties(place)
        if blob is not None:
            return {"etag": blob.etag, "last_modified": blob.last_modified}
        metadata = {IS_FOLDER: "true"}
        return await self._blob(place).upload_blob(b"", metadata=metadata, headers=_event(None))

    async def rename(
        self, source: Place, destination: Place, *, replaces: bool, ids: RequestIds
    ) -> None:
        """Rename a file, or a directory with its contents, in one step.

        Args:
            source: the present place.
            destination: the new place.
            replaces: whether to replace a file or an empty directory at the destination.
            ids: of the request.
        """
        url = self._blob(source).url
        headers = _event(ids) | {"x-ms-rename-source": url}
        if not replaces:
            headers["If-None-Match"] = "*"
        await self._blob(destination).start_copy_from_url(url, requires_sync=False, headers=headers)

    async def delete(self, place: Place, *, is_recursive: bool, ids: RequestIds) -> None:
        """Delete a file, or a directory with its contents, in one step."""
        parameters = {"recursive": str(is_recursive).lower()}
        await self._blob(place).delete_blob(params=parameters, headers=_event(ids))

    async def list(self, place: Place, *, is_recursive: bool, size: int, after: str) -> Page:
        """Return a page of the paths below a directory; see `page_of`."""
        if place.name and await self.kind(place) is not Kind.DIRECTORY:
            raise PathError(PATH_NOT_FOUND)
        container = self._container(place)
        return await page_of(
            container, place.name, is_recursive=is_recursive, size=size, after=after
        )

    # --- blobs ---------------------------------------------------------------------------------

    async def _properties(self, place: Place) -> BlobProperties | None:
        from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415 - as above

        try:
            return await self._blob(place).get_blob_properties()
        except ResourceNotFoundError:
            return None

    async def _is_empty(self, place: Place) -> bool:
        """Whether a directory is empty."""
        below = self._container(place).list_blobs(
            name_starts_with=f"{place.name}/", results_per_page=1
        )
        async for _ in below:
            return False
        return True

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
    """Return the service's refusal for an error of Azurite."""
    # It is the SDK's enum, or a string if the SDK does not know the code.
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


def _event(ids: RequestIds | None, api: str | None = None) -> dict[str, str]:
    """The header of a change that has an event if there are ids. Azurite knows what it renames."""
    event = None if ids is None else {**ids, **({} if api is None else {"api": api})}
    return {EVENT_HEADER: json.dumps(event)}


def _kind_of(blob: BlobProperties) -> Kind:
    return Kind.DIRECTORY if is_directory(blob) else Kind.FILE


def _block_id(position: int) -> str:
    return f"{position:020d}"
