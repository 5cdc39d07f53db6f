"""Recognizes requests to the Blob service that raise events. Pure: no I/O.

Sources: the REST reference (https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api)
and the list of operations that raise events
(https://learn.microsoft.com/azure/event-grid/event-schema-blob-storage).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Self
from urllib.parse import parse_qs, unquote

ROOT_CONTAINER = "$root"
# The service's default if the writer sets no type.
DEFAULT_CONTENT_TYPE = "application/octet-stream"


class Api(StrEnum):
    """The operations that raise events; the values are `data.api` of the events."""

    PUT_BLOB = "PutBlob"
    PUT_BLOCK_LIST = "PutBlockList"
    COPY_BLOB = "CopyBlob"
    DELETE_BLOB = "DeleteBlob"
    SET_BLOB_TIER = "SetBlobTier"
    CREATE_FILE = "CreateFile"
    FLUSH_WITH_CLOSE = "FlushWithClose"
    DELETE_FILE = "DeleteFile"
    RENAME_FILE = "RenameFile"
    CREATE_DIRECTORY = "CreateDirectory"
    RENAME_DIRECTORY = "RenameDirectory"
    DELETE_DIRECTORY = "DeleteDirectory"

    @property
    def needs_properties_before(self) -> bool:
        """Whether the event, or the check of the outcome, needs the blob's previous properties."""
        return self.is_deletion or self.is_rename or self is Api.SET_BLOB_TIER

    @property
    def is_deletion(self) -> bool:
        """Whether the operation deletes its path."""
        return self in {Api.DELETE_BLOB, Api.DELETE_FILE, Api.DELETE_DIRECTORY}

    @property
    def is_rename(self) -> bool:
        """Whether the operation renames a path to its path."""
        return self in {Api.RENAME_FILE, Api.RENAME_DIRECTORY}

    @property
    def is_dfs(self) -> bool:
        """Whether the operation belongs to the dfs endpoint."""
        return self.value.endswith(("File", "Directory", "Close"))

    @property
    def describes_blob(self) -> bool:
        """Whether the event has the properties of a blob."""
        return self not in {
            Api.RENAME_FILE,
            Api.CREATE_DIRECTORY,
            Api.RENAME_DIRECTORY,
            Api.DELETE_DIRECTORY,
        }


@dataclass(frozen=True)
class Operation:
    """A request that creates, renames or deletes a blob, or changes its tier, if it succeeds.

    Attributes:
        api: the operation.
        path: the request's path as sent, percent-encoded, with the account first.
        client_request_id: `x-ms-client-request-id`, empty if not sent.
        source: the path that is renamed to `path`, in the same form.
        is_recursive: whether a directory is deleted with its contents.
    """

    api: Api
    path: str
    client_request_id: str
    source: str = ""
    is_recursive: bool = False

    @property
    def account(self) -> str:
        """Account name."""
        return account_of(self.path)

    @property
    def container(self) -> str:
        """Container name; `$root` if the path names only a blob."""
        return split_path(self.path)[0]

    @property
    def blob(self) -> str:
        """Blob name, decoded."""
        return split_path(self.path)[1]

    @classmethod
    def classify(cls, method: str, target: str, headers: Mapping[str, str]) -> Self | None:
        """Return the operation of a request; None if it raises no event.

        Args:
            method: in upper case.
            target: path and query as sent.
            headers: a mapping with case-insensitive keys.
        """
        path, query = split_target(target)
        if "restype" in query or not split_path(path)[1]:
            return None
        api = None
        if method == "PUT":
            api = _classify_put(query, headers)
        elif method == "DELETE":
            only_snapshots = headers.get("x-ms-delete-snapshots", "").lower() == "only"
            if not only_snapshots and not query.keys() & {"comp", "snapshot", "versionid"}:
                api = Api.DELETE_BLOB
        if api is None:
            return None
        return cls(api, path, headers.get("x-ms-client-request-id", ""))

    def succeeded(self, status: int, headers: Mapping[str, str]) -> bool:
        """Whether the status of the answer means that the operation has taken place."""
        match self.api:
            case Api.PUT_BLOB | Api.PUT_BLOCK_LIST:
                return status == HTTPStatus.CREATED
            case Api.COPY_BLOB:
                accepted = status == HTTPStatus.ACCEPTED
                return accepted and headers.get("x-ms-copy-status", "").lower() == "success"
            case Api.DELETE_BLOB:
                return status == HTTPStatus.ACCEPTED
            case Api.SET_BLOB_TIER:  # 202: a rehydration has begun
                return status == HTTPStatus.OK
            case _:
                raise ValueError(f"{self.api} is not a request to the Blob service")


def _classify_put(query: Mapping[str, str], headers: Mapping[str, str]) -> Api | None:
    comp = query.get("comp")
    if comp == "tier" and not query.keys() & {"snapshot", "versionid"}:
        return Api.SET_BLOB_TIER
    if comp == "blocklist":
        return Api.PUT_BLOCK_LIST
    if comp is not None:  # a block, a page, metadata, properties, a lease, a snapshot …
        return None
    if "x-ms-blob-type" in headers:
        return Api.PUT_BLOB
    return Api.COPY_BLOB if "x-ms-copy-source" in headers else None


def account_of(path: str) -> str:
    """The account of a path-style path `/account/container/blob`."""
    return path.removeprefix("/").partition("?")[0].partition("/")[0]


def split_target(target: str) -> tuple[str, dict[str, str]]:
    """Return the path as sent, and the first value of each query parameter by lower-case name."""
    path, _, query = target.partition("?")
    return path, {name.lower(): values[0] for name, values in parse_qs(query).items()}


def split_path(path: str) -> tuple[str, str]:
    """Container and blob name, decoded, of a path-style path `/account/container/blob`.

    A single segment after the account is a blob of the root container. The blob is empty if the
    path names none.
    """
    _, _, rest = path.removeprefix("/").partition("/")
    container, slash, blob = rest.partition("/")
    if not slash:
        return ROOT_CONTAINER, unquote(container)
    return unquote(container), unquote(blob)


@dataclass(frozen=True)
class Properties:
    """The fields of a blob in an event, except its name.

    Attributes:
        etag: the ETag without quotes.
        length: the length in bytes.
        tier: None if the blob has the account's tier.
    """

    etag: str
    content_type: str
    length: int
    blob_type: str
    tier: str | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Self:
        """Read the headers of Get Blob Properties."""
        is_inferred = headers.get("x-ms-access-tier-inferred", "").lower() == "true"
        return cls(
            etag=headers.get("ETag", "").strip('"'),
            content_type=headers.get("Content-Type", DEFAULT_CONTENT_TYPE),
            length=int(headers.get("Content-Length", 0)),
            blob_type=headers.get("x-ms-blob-type", "BlockBlob"),
            tier=None if is_inferred else headers.get("x-ms-access-tier"),
        )

    @classmethod
    def of_put(
        cls, request: Mapping[str, str], response: Mapping[str, str], body_bytes: int
    ) -> Self | None:
        """Derive the properties from a Put Blob request and its response, without a lookup.

        Returns:
            None for Put Blob From URL, whose contents are not in the request.
        """
        if "x-ms-copy-source" in request:
            return None
        blob_type = request["x-ms-blob-type"]
        page_bytes = int(request.get("x-ms-blob-content-length", 0))
        return cls(
            etag=response.get("ETag", "").strip('"'),
            content_type=request.get(
                "x-ms-blob-content-type", request.get("Content-Type", DEFAULT_CONTENT_TYPE)
            ),
            length=page_bytes if blob_type == "PageBlob" else body_bytes,
            blob_type=blob_type,
        )
