"""Pages of the paths below a directory, from pages of the blobs below it.

A directory may have a blob, or be only a prefix of blob names. Azurite lists blobs in the order of
their names, so a directory without a blob appears with the first blob below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import Final

from localazure.storage.dfs_requests import Place
from localazure.storage_client import blobs
from localazure.storage_client.blobs import Blob
from localazure.storage_client.client import StorageClient
from localazure.storage_client.endpoint import NotFoundError

DEFAULT_PAGE: Final = 5000
"""https://learn.microsoft.com/rest/api/storageservices/datalakestoragegen2/path/list"""
IS_FOLDER: Final = "hdi_isfolder"


@dataclass(frozen=True)
class Page:
    """Paths in the service's form.

    Attributes:
        end: the continuation token; empty on the last page.
    """

    paths: list[dict[str, str]]
    end: str


async def page_of(
    service: StorageClient, directory: Place, *, is_recursive: bool, size: int, after: str
) -> Page:
    """Return a page of the paths below a directory.

    Args:
        service: the Blob service of the account.
        directory: the directory; an empty name is the root.
        is_recursive: whether to list the contents of directories below it.
        size: the most paths of a page.
        after: the previous page's `end`; empty for the first page.
    """
    container, top = directory.filesystem, f"{directory.name}/" if directory.name else ""
    request = blobs.list_blobs(
        container,
        top,
        marker=after,
        delimiter="" if is_recursive else "/",
        size=size,
        with_metadata=True,
    )
    page = blobs.parse_page((await service.send(request)).body)
    listed: dict[str, Blob | None] = dict.fromkeys(page.prefixes)
    listed |= {blob.name: blob for blob in page.blobs}
    paths: dict[str, dict[str, str]] = {}  # by the `end` of a page whose last path it is
    previous = after
    # Azurite compares UTF-16, and lists prefixes separately.
    for name in sorted(listed, key=lambda name: name.encode("utf-16-be")):
        for parent in _directories(name, top):
            begins = not previous.startswith(f"{parent}/") and parent not in paths
            if begins and not await _is_on_page_before(service, container, parent, after):
                paths[f"{parent}/"] = {"name": parent, "isDirectory": "true"}
        if (blob := listed[name]) is not None and not name.endswith("/"):
            paths[name] = _described(blob)
        previous = name
    if len(paths) <= size:
        return Page(list(paths.values()), page.marker)
    return Page(list(paths.values())[:size], list(paths)[size - 1])


async def _is_on_page_before(service: StorageClient, container: str, name: str, after: str) -> bool:
    """Whether a previous page listed the directory, because it has a blob."""
    # All names that sort between a name and the name with "/" begin with the name.
    if not after.startswith(name):
        return False
    try:
        await service.send(blobs.properties(f"{container}/{name}"))
    except NotFoundError:
        return False
    return True


def is_directory(blob: Blob) -> bool:
    """Whether a blob represents a directory."""
    return blob.metadata.get(IS_FOLDER) == "true"


def _directories(name: str, top: str) -> list[str]:
    """The directories between `top` and a blob, outermost first."""
    parts = name.removeprefix(top).split("/")
    return [top + "/".join(parts[:depth]) for depth in range(1, len(parts))]


def _described(blob: Blob) -> dict[str, str]:
    described = {
        "name": blob.name,
        "etag": blob.etag,
        "lastModified": format_datetime(blob.modified, usegmt=True),
        "contentLength": str(blob.size),
    }
    return described | ({"isDirectory": "true"} if is_directory(blob) else {})
