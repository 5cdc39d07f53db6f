"""Pages of the paths below a directory, from pages of the blobs below it.

A directory may have a blob, or be only a prefix of blob names. Azurite lists blobs in the order of
their names, so a directory without a blob appears with the first blob below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties
    from azure.storage.blob.aio import BlobPrefix, ContainerClient

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
    container: ContainerClient, directory: str, *, is_recursive: bool, size: int, after: str
) -> Page:
    """Return a page of the paths below a directory.

    Args:
        container: the file system's container.
        directory: the directory's name; empty for the root.
        is_recursive: whether to list the contents of directories below it.
        size: the most paths of a page.
        after: the previous page's `end`; empty for the first page.
    """
    top = f"{directory}/" if directory else ""
    options: Any = {
        "name_starts_with": top or None,
        "include": ["metadata"],
        "results_per_page": size,
    }
    listed = container.list_blobs if is_recursive else container.walk_blobs
    pages: Any = listed(**options).by_page(after or None)
    blobs = sorted([each async for each in await anext(pages)], key=_in_order_of_names)
    paths: dict[str, dict[str, str]] = {}  # by the `end` of a page whose last path it is
    previous = after
    for blob in blobs:
        for name in _directories(blob.name, top):
            begins = not previous.startswith(f"{name}/") and name not in paths
            if begins and not await _is_on_page_before(container, name, after):
                paths[f"{name}/"] = {"name": name, "isDirectory": "true"}
        if not blob.name.endswith("/"):
            paths[blob.name] = _described(blob)
        previous = blob.name
    if len(paths) <= size:
        return Page(list(paths.values()), pages.continuation_token or "")
    return Page(list(paths.values())[:size], list(paths)[size - 1])


async def _is_on_page_before(container: ContainerClient, name: str, after: str) -> bool:
    """Whether a previous page listed the directory, because it has a blob."""
    from azure.core.exceptions import ResourceNotFoundError  # noqa: PLC0415 - see `hierarchy`

    # All names that sort between a name and the name with "/" begin with the name.
    if not after.startswith(name):
        return False
    try:
        await container.get_blob_client(name).get_blob_properties()
    except ResourceNotFoundError:
        return False
    return True


def is_directory(blob: BlobProperties) -> bool:
    """Whether a blob represents a directory."""
    return (blob.metadata or {}).get(IS_FOLDER) == "true"


def _in_order_of_names(blob: BlobProperties | BlobPrefix) -> bytes:
    """Sort key: Azurite compares UTF-16, and lists prefixes separately, before the blobs."""
    return blob.name.encode("utf-16-be")


def _directories(name: str, top: str) -> list[str]:
    """The directories between `top` and a blob, outermost first."""
    parts = name.removeprefix(top).split("/")
    return [top + "/".join(parts[:depth]) for depth in range(1, len(parts))]


def _described(blob: BlobProperties) -> dict[str, str]:
    described = {
        "name": blob.name,
        "etag": blob.etag,
        "lastModified": format_datetime(blob.last_modified, usegmt=True),
        "contentLength": str(blob.size),
    }
    return described | ({"isDirectory": "true"} if is_directory(blob) else {})
