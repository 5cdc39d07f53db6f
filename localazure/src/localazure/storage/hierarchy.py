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
from typing import Final, TypeAlias, TypedDict

from localazure.storage.dfs_requests import Place
from localazure.storage.path_listing import IS_FOLDER, Page, is_directory, page_of
from localazure.storage.refusal import Refusal
from localazure.storage_client import blobs
from localazure.storage_client.blobs import Blob
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import Answer, NotFoundError, Request, StorageError


class PathError(Exception):
    """The service refuses a request."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


EVENT_HEADER: Final = "localazure-event"
"""Tells `azurite/blob_events.js` which event a change has, in JSON; `null` if it has none."""


Written: TypeAlias = Mapping[str, str]
"""The headers `ETag` and `Last-Modified` of a path."""


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


_STANDARD: Final = ("Type", "Encoding", "Language", "Disposition")


class Hierarchy:
    """Operations on files and directories.

    All raise `PathError` if the service would refuse, and `StorageError` if Azurite refuses or
    cannot be reached.

    Args:
        open_service: opens the Blob service of an account, directly at Azurite.
    """

    def __init__(self, open_service: Callable[[str], StorageClient]) -> None:
        self._open_service = open_service

    async def kind(self, place: Place) -> Kind | None:
        """Return the kind of a path; None if it does not exist."""
        if not place.name:
            return Kind.DIRECTORY
        blob = await self._properties(place)
        if blob is not None:
            return Kind.DIRECTORY if is_directory(blob) else Kind.FILE
        listing = blobs.list_blobs(place.filesystem, f"{place.name}/", size=1)
        page = blobs.parse_page((await self._send(place, listing)).body)
        return Kind.DIRECTORY if page.blobs else None

    async def create(
        self,
        place: Place,
        kind: Kind,
        *,
        settings: Mapping[str, str],
        metadata: Mapping[str, str],
        conditions: Mapping[str, str],
        ids: RequestIds,
    ) -> Written:
        """Create an empty file, or a directory, with its parent directories.

        An existing file is overwritten; an existing directory is unchanged.

        Args:
            place: of the path.
            kind: file or directory.
            settings: headers such as `x-ms-blob-content-type`.
            metadata: of the path.
            conditions: headers such as `if-match`.
            ids: of the request.
        """
        present = await self.kind(place)
        if present is not None and (present is not kind or "if-none-match" in conditions):
            raise PathError(_PATH_ALREADY_EXISTS)
        if present is Kind.DIRECTORY:
            return await self.ensure_directory(place)
        parent = place.parent
        while parent.name:
            if await self.kind(parent) is Kind.FILE:
                raise PathError(_PATH_ALREADY_EXISTS)
            await self.ensure_directory(parent)
            parent = parent.parent
        is_folder = kind is Kind.DIRECTORY
        headers = {
            **settings,
            **blobs.metadata_headers({**metadata, **({IS_FOLDER: "true"} if is_folder else {})}),
            **conditions,
            **_event(ids, "CreateDirectory" if is_folder else "CreateFile"),
        }
        return _written(await self._send(place, blobs.upload(_name(place), b"", headers=headers)))

    async def append(self, place: Place, position: int, data: bytes) -> None:
        """Stage data, which becomes part of the file with a flush."""
        await self._send(place, blobs.stage_block(_name(place), _block_id(position), data))

    async def flush(
        self,
        place: Place,
        position: int,
        *,
        settings: Mapping[str, str],
        conditions: Mapping[str, str],
        ids: RequestIds | None,
    ) -> Written:
        """Add appended data to the file, which then has `position` bytes.

        Without ids the file is not closed: there is no event. See `create`.
        """
        name = _name(place)
        present: dict[str, str] = {}
        size = None
        try:
            answer = await self._send(place, blobs.properties(name))
        except NotFoundError:
            pass
        else:
            blob = blobs.parse_properties(name, answer.headers)
            size, present = blob.size, _settings_of(blob, answer)
        answer = await self._send(place, blobs.list_blocks(name))
        committed, appended = blobs.parse_blocks(answer)
        length = sum(committed.values())
        if size is not None and length != size:
            raise PathError(_NOT_APPENDED)
        blocks = list(committed)
        while length < position and (block := _block_id(length)) in appended:
            blocks.append(block)
            length += appended[block]
        if length != position:
            raise PathError(_NOT_CONTIGUOUS)
        headers = {**present, **settings, **conditions, **_event(ids, "FlushWithClose")}
        return _written(await self._send(place, blobs.commit_blocks(name, blocks, headers)))

    async def ensure_directory(self, place: Place) -> Written:
        """Create the blob of a directory that exists only by the blobs below it."""
        try:
            return _written(await self._send(place, blobs.properties(_name(place))))
        except NotFoundError:
            headers = {**blobs.metadata_headers({IS_FOLDER: "true"}), **_event(None)}
            request = blobs.upload(_name(place), b"", headers=headers, must_be_new=True)
            return _written(await self._send(place, request))

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
        url = self._open_service(source.account).endpoint.url_of(_name(source))
        headers = {
            "x-ms-rename-source": url,
            **({} if replaces else {"if-none-match": "*"}),
            **_event(ids),
        }
        await self._send(destination, blobs.copy(_name(destination), url, headers))

    async def delete(self, place: Place, *, is_recursive: bool, ids: RequestIds) -> None:
        """Delete a file, or a directory with its contents, in one step."""
        query = {"recursive": str(is_recursive).lower()}
        await self._send(place, Request("DELETE", _name(place), query, _event(ids)))

    async def list(self, place: Place, *, is_recursive: bool, size: int, after: str) -> Page:
        """Return a page of the paths below a directory; see `page_of`."""
        if place.name and await self.kind(place) is not Kind.DIRECTORY:
            raise PathError(PATH_NOT_FOUND)
        service = self._open_service(place.account)
        return await page_of(service, place, is_recursive=is_recursive, size=size, after=after)

    async def _properties(self, place: Place) -> Blob | None:
        try:
            answer = await self._send(place, blobs.properties(_name(place)))
        except NotFoundError:
            return None
        return blobs.parse_properties(place.name, answer.headers)

    async def _send(self, place: Place, request: Request) -> Answer:
        return await self._open_service(place.account).send(request)


def refusal_of(error: StorageError) -> Refusal:
    """Return the service's refusal for an error of Azurite."""
    code = error.code or "InternalError"
    if code == "BlobNotFound":
        return PATH_NOT_FOUND
    if code == "BlobAlreadyExists":
        return _PATH_ALREADY_EXISTS
    if code == "ContainerNotFound":
        code = "FilesystemNotFound"
    return Refusal(HTTPStatus(error.status or HTTPStatus.INTERNAL_SERVER_ERROR), code, error.reason)


def _event(ids: RequestIds | None, api: str | None = None) -> dict[str, str]:
    """The header of a change that has an event if there are ids. Azurite knows what it renames."""
    event = None if ids is None else {**ids, **({} if api is None else {"api": api})}
    return {EVENT_HEADER: json.dumps(event)}


def _settings_of(blob: Blob, answer: Answer) -> dict[str, str]:
    """The headers that give a blob its present settings and metadata."""
    names = {f"x-ms-blob-content-{name.lower()}": f"Content-{name}" for name in _STANDARD}
    names["x-ms-blob-cache-control"] = "Cache-Control"
    settings = {
        name: answer.headers[shown] for name, shown in names.items() if shown in answer.headers
    }
    return settings | blobs.metadata_headers(blob.metadata)


def _written(answer: Answer) -> Written:
    return {name: answer.headers[name] for name in ("ETag", "Last-Modified")}


def _name(place: Place) -> str:
    return f"{place.filesystem}/{place.name}"


def _block_id(position: int) -> str:
    return f"{position:020d}"
